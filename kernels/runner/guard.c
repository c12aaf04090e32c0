/* guard.c - `guard`: the dead-man.
 *
 * The one rule: whatever happens to the agent, the phone gets its old values back. One node that
 * cannot be written must not keep the others changed, and a list that is gone means that somebody
 * else has done it. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "system.h"
#include "verbs.h"

enum { LIST_BYTES = 1 << 18, ALIVE_BYTES = 256 };

static const int64_t LOOK_EVERY_NS = 1000000000;

struct guard {
    const char *folder;
    int64_t silence_ns, heard;
    int64_t hot_since; /* -1: not above any limit */
    char alive[ALIVE_BYTES];
    char list[LIST_BYTES];
};

/* Reads DIR/name; -1 when it is not there. */
static long read_mine(const struct guard *guard, const char *name, char *bytes, size_t size) {
    char path[PATH_BYTES];
    return join_path(path, guard->folder, name) ? read_start(path, bytes, size) : -1;
}

static bool shows_life(struct guard *guard) {
    char alive[ALIVE_BYTES] = "";
    read_mine(guard, "alive", alive, sizeof alive);
    bool changed = strcmp(alive, guard->alive) != 0;
    strcpy(guard->alive, alive);
    return changed;
}

/* -- the ceiling */

static bool is_above(const char *path, const char *limit) {
    char text[64];
    char *end = NULL, *limit_end = NULL;
    if (read_start(path, text, sizeof text) <= 0) {
        return false;
    }
    long long value = strtoll(text, &end, 10), most = strtoll(limit, &limit_end, 10);
    return end != text && limit_end != limit && value > most;
}

static bool above_ceiling(struct guard *guard) {
    if (read_mine(guard, "ceiling", guard->list, sizeof guard->list) <= 0) {
        return false;
    }
    char *rest = guard->list;
    for (char *line = rest; *line != '\0'; line = rest) {
        char *stop = strchr(line, '\n');
        rest = stop == NULL ? line + strlen(line) : stop + 1;
        if (stop != NULL) {
            *stop = '\0';
        }
        char *limit = strchr(line, '\t');
        if (limit != NULL) {
            *limit++ = '\0';
            if (is_above(line, limit)) {
                return true;
            }
        }
    }
    return false;
}

/* At two looks in a row, a second apart. */
static bool stays_too_hot(struct guard *guard, int64_t now) {
    if (!above_ceiling(guard)) {
        guard->hot_since = -1;
        return false;
    }
    if (guard->hot_since < 0) {
        guard->hot_since = now;
    }
    return now - guard->hot_since >= LOOK_EVERY_NS * 9 / 10;
}

/* -- putting back */

/* Whether that process is a runner at work, or a foreign program out of DIR/work, and not a
 * stranger who was given its number. */
static bool is_a_run(const struct guard *guard, long pid) {
    char path[64], words[PATH_BYTES], foreign[PATH_BYTES];
    compose(path, sizeof path, "/proc/%lld/cmdline", (long long)pid);
    long count = read_start(path, words, sizeof words);
    if (count <= 0 || !join_path(foreign, guard->folder, "work/")) {
        return false;
    }
    bool found = false;
    size_t at = 0;
    for (int word = 0; at < (size_t)count && !found; word++) {
        found = (word == 1 && strcmp(words + at, "run") == 0) ||
                strncmp(words + at, foreign, strlen(foreign)) == 0;
        at += strlen(words + at) + 1;
    }
    return found;
}

static void kill_runner(struct guard *guard) {
    char hello[1024];
    if (read_mine(guard, "out.jsonl", hello, sizeof hello) <= 0) {
        return;
    }
    char *stop = strchr(hello, '\n');
    if (stop != NULL) {
        *stop = '\0';
    }
    const char *at = strstr(hello, "\"pid\":");
    long pid = at == NULL ? 0 : strtol(at + 6, NULL, 10);
    if (pid > 1 && is_a_run(guard, pid)) {
        kill((pid_t)pid, SIGKILL);
    }
}

static void write_node(const char *path, char *value) {
    size_t length = strlen(value);
    value[length] = '\n'; /* in the place of the zero byte */
    int file = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NONBLOCK);
    if (file >= 0) {
        if (write(file, value, length + 1) < 0) {
            /* A stubborn node; the agent's own journal will find it changed. */
        }
        close(file);
    }
}

/* From the last line to the first. A line without its end was not finished, so its node was never
 * written either. */
static void write_back(char *list) {
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

static int put_back(struct guard *guard) {
    char from[PATH_BYTES], to[PATH_BYTES];
    kill_runner(guard);
    if (read_mine(guard, "restore", guard->list, sizeof guard->list) > 0) {
        write_back(guard->list);
    }
    if (join_path(from, guard->folder, "restore") && join_path(to, guard->folder, "restored")) {
        rename(from, to);
    }
    return RUNNER_GUARD_RESTORED;
}

static bool list_is_gone(const struct guard *guard) {
    char path[PATH_BYTES];
    return !join_path(path, guard->folder, "restore") || access(path, F_OK) != 0;
}

int guard(const char *folder, double silence_s) {
    static struct guard guard;
    struct fault fault = {RUNNER_DONE, ""};
    guard.folder = folder;
    if (access(folder, F_OK) != 0) {
        fault_say(&fault, RUNNER_IO, "%.200s: %s", folder, system_reason());
        return say_fault(NULL, &fault);
    }
    signal(SIGHUP, SIG_IGN);
    guard.silence_ns = (int64_t)(silence_s * 1e9);
    guard.hot_since = -1;
    guard.heard = now_ns();
    shows_life(&guard);
    while (!list_is_gone(&guard)) {
        int64_t now = now_ns();
        guard.heard = shows_life(&guard) ? now : guard.heard;
        if (now - guard.heard >= guard.silence_ns || stays_too_hot(&guard, now)) {
            return put_back(&guard);
        }
        int64_t due = guard.heard + guard.silence_ns;
        sleep_until(due < now + LOOK_EVERY_NS ? due : now + LOOK_EVERY_NS);
    }
    return RUNNER_DONE;
}
