/* watchdog.c - the command `watchdog`: restores the phone when the agent disappears.
 *
 * The one rule: whatever happens to the agent, the phone gets its old values back. A node that
 * cannot be written does not keep the others from being restored, and a missing list means that the
 * agent has restored everything itself. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../engine/os.h"
#include "commands.h"

enum { LIST_BYTES = 1 << 18, HEARTBEAT_BYTES = 256 };

static const int64_t CHECK_PERIOD_NS = 1000000000;

struct watchdog_state {
    const char *folder;
    int64_t timeout_ns, last_heartbeat;
    int64_t hot_since; /* -1: below all limits */
    char heartbeat[HEARTBEAT_BYTES];
    char list[LIST_BYTES];
};

/* Reads DIR/name; -1: it does not exist. */
static long read_in_folder(const struct watchdog_state *state, const char *name, char *bytes,
                           size_t size) {
    char path[PATH_BYTES];
    return join_path(path, state->folder, name) ? read_file_start(path, bytes, size) : -1;
}

static bool heartbeat_changed(struct watchdog_state *state) {
    char heartbeat[HEARTBEAT_BYTES] = "";
    read_in_folder(state, "heartbeat", heartbeat, sizeof heartbeat);
    bool changed = strcmp(heartbeat, state->heartbeat) != 0;
    strcpy(state->heartbeat, heartbeat);
    return changed;
}

/* ---- temperature limits ---- */

static bool is_above_limit(const char *path, const char *limit) {
    char text[64];
    char *end = NULL, *limit_end = NULL;
    if (read_file_start(path, text, sizeof text) <= 0) {
        return false;
    }
    long long value = strtoll(text, &end, 10), most = strtoll(limit, &limit_end, 10);
    return end != text && limit_end != limit && value > most;
}

static bool is_above_any_limit(struct watchdog_state *state) {
    if (read_in_folder(state, "temp_limits", state->list, sizeof state->list) <= 0) {
        return false;
    }
    char *rest = state->list;
    for (char *line = rest; *line != '\0'; line = rest) {
        char *stop = strchr(line, '\n');
        rest = stop == NULL ? line + strlen(line) : stop + 1;
        if (stop != NULL) {
            *stop = '\0';
        }
        char *limit = strchr(line, '\t');
        if (limit != NULL) {
            *limit++ = '\0';
            if (is_above_limit(line, limit)) {
                return true;
            }
        }
    }
    return false;
}

/* Above a limit at two checks in a row, a second apart. */
static bool stays_above_limit(struct watchdog_state *state, int64_t now) {
    if (!is_above_any_limit(state)) {
        state->hot_since = -1;
        return false;
    }
    if (state->hot_since < 0) {
        state->hot_since = now;
    }
    return now - state->hot_since >= CHECK_PERIOD_NS * 9 / 10;
}

/* ---- restoring ---- */

/* Whether a process is a runner that runs a plan, or a foreign program from DIR/work, and not
 * another process that was given the same pid. */
static bool is_our_process(const struct watchdog_state *state, long pid) {
    char path[64], words[PATH_BYTES], foreign[PATH_BYTES];
    format_text(path, sizeof path, "/proc/%lld/cmdline", (long long)pid);
    long count = read_file_start(path, words, sizeof words);
    if (count <= 0 || !join_path(foreign, state->folder, "work/")) {
        return false;
    }
    bool is_ours = false;
    size_t at = 0;
    for (int word = 0; at < (size_t)count && !is_ours; word++) {
        is_ours = (word == 1 && strcmp(words + at, "run") == 0) ||
                  strncmp(words + at, foreign, strlen(foreign)) == 0;
        at += strlen(words + at) + 1;
    }
    return is_ours;
}

static void kill_runner(struct watchdog_state *state) {
    char hello[1024];
    if (read_in_folder(state, "out.jsonl", hello, sizeof hello) <= 0) {
        return;
    }
    char *stop = strchr(hello, '\n');
    if (stop != NULL) {
        *stop = '\0';
    }
    const char *at = strstr(hello, "\"pid\":");
    long pid = at == NULL ? 0 : strtol(at + 6, NULL, 10);
    if (pid > 1 && is_our_process(state, pid)) {
        kill((pid_t)pid, SIGKILL);
    }
}

static void write_node(const char *path, char *value) {
    size_t length = strlen(value);
    value[length] = '\n'; /* replaces the zero byte */
    int file = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NONBLOCK);
    if (file >= 0) {
        if (write(file, value, length + 1) < 0) {
            /* The node refused the value; the journal of the agent will find it changed. */
        }
        close(file);
    }
}

/* Writes the old values back, from the last line to the first. A line without a newline was not
 * finished, so its node was never changed. */
static void restore_nodes(char *list) {
    char *end = strrchr(list, '\n');
    while (end != NULL) {
        *end = '\0';
        char *before = strrchr(list, '\n');
        char *line = before == NULL ? list : before + 1;
        char *value = strchr(line, '\t');
        if (value != NULL) {
            *value++ = '\0';
            write_node(line, value);
        }
        end = before;
    }
}

static int restore(struct watchdog_state *state) {
    char from[PATH_BYTES], to[PATH_BYTES];
    kill_runner(state);
    if (read_in_folder(state, "restore", state->list, sizeof state->list) > 0) {
        restore_nodes(state->list);
    }
    if (join_path(from, state->folder, "restore") && join_path(to, state->folder, "restored")) {
        rename(from, to);
    }
    return STATUS_GUARD_RESTORED;
}

static bool restore_list_is_gone(const struct watchdog_state *state) {
    char path[PATH_BYTES];
    return !join_path(path, state->folder, "restore") || access(path, F_OK) != 0;
}

int watchdog_main(const char *folder, double timeout_s) {
    static struct watchdog_state state;
    struct fault fault = {STATUS_DONE, ""};
    state.folder = folder;
    if (access(folder, F_OK) != 0) {
        fault_set(&fault, STATUS_IO, "cannot open %.200s: %s", folder, os_error_text());
        return report_fault(NULL, &fault);
    }
    signal(SIGHUP, SIG_IGN);
    state.timeout_ns = (int64_t)(timeout_s * 1e9);
    state.hot_since = -1;
    state.last_heartbeat = now_ns();
    heartbeat_changed(&state);
    while (!restore_list_is_gone(&state)) {
        int64_t now = now_ns();
        state.last_heartbeat = heartbeat_changed(&state) ? now : state.last_heartbeat;
        if (now - state.last_heartbeat >= state.timeout_ns || stays_above_limit(&state, now)) {
            return restore(&state);
        }
        int64_t due = state.last_heartbeat + state.timeout_ns;
        sleep_until(due < now + CHECK_PERIOD_NS ? due : now + CHECK_PERIOD_NS);
    }
    return STATUS_DONE;
}
