/* sampler.c - telemetry: kept-open nodes, read at absolute moments.
 *
 * The one rule: it must not disturb what it watches. It sits on a core outside the mask where there
 * is one, reads with one call a node, makes its lines without the C library's help, and hands
 * them over about once a second. What all that cost is measured and said. */
#include "sampler.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "system.h"
#include "verbs.h"

enum {
    NODES_MAX = 256,
    NODES_BYTES_MAX = 48 * 1024,
    NODE_BYTES = 16 * 1024,
    TEXT_BYTES_MAX = 256,
    WHOLE_BYTES_MAX = 1024,
    LATE_BINS = 1 << 14, /* a microsecond each */
    SAY_ROOM = 1 << 17
};

static const int64_t FLUSH_NS = 900000000;
static const double PERIOD_MIN_MS = 10;

enum form { FORM_LINE, FORM_CORES, FORM_WHOLE };

struct node {
    const char *path;
    enum form form;
    int file; /* -1: not there, or not for us */
};

struct sampler {
    struct say say;
    struct fault fault;
    struct node node[NODES_MAX];
    int nodes;
    int64_t period_ns, flushed;
    int64_t readings, late_max_ns, cpu_ns;
    uint32_t late[LATE_BINS];
    uint64_t mask;
    int core;
    pthread_t thread;
    bool alone; /* as `sample`, which SIGTERM may end at once */
    atomic_bool ending, failed, left;
    char bytes[NODE_BYTES]; /* of the node in hand */
};

/* -- the list of nodes */

static bool add_node(struct sampler *sampler, char *line) {
    static const char *const forms[] = {"", "cores", "whole"};
    char *mark = strchr(line, '\t');
    struct node *node = &sampler->node[sampler->nodes];
    if (mark != NULL) {
        *mark++ = '\0';
    }
    if (*line == '\0') {
        return true;
    }
    if (sampler->nodes == NODES_MAX) {
        return fault_say(&sampler->fault, RUNNER_USAGE, "more than %d nodes are listed", NODES_MAX);
    }
    *node = (struct node){.path = line, .file = -1};
    for (int form = FORM_CORES; form <= FORM_WHOLE; form++) {
        if (mark != NULL && strcmp(mark, forms[form]) == 0) {
            node->form = (enum form)form;
        }
    }
    if (mark != NULL && node->form == FORM_LINE) {
        return fault_say(&sampler->fault, RUNNER_USAGE, "'%.40s' is no mark of a node", mark);
    }
    sampler->nodes++;
    return true;
}

static bool add_nodes(struct sampler *sampler, char *text, size_t count) {
    char *end = text + count;
    for (char *line = text; line < end;) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        char *after = stop == NULL ? end : stop + 1;
        if (stop == NULL) {
            stop = end; /* one byte behind the text belongs to us */
        }
        *stop = '\0';
        if (!add_node(sampler, line)) {
            return false;
        }
        line = after;
    }
    return true;
}

static void open_nodes(struct sampler *sampler) {
    for (int i = 0; i < sampler->nodes; i++) {
        if (sampler->node[i].file < 0) {
            sampler->node[i].file = open(sampler->node[i].path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        }
    }
}

static void say_nodes(struct sampler *sampler) {
    struct say *say = &sampler->say;
    say_begin(say, "nodes");
    say_open_list(say, "paths", '[');
    for (int i = 0; i < sampler->nodes; i++) {
        say_word(say, NULL, sampler->node[i].path);
    }
    say_close_list(say, ']');
    say_end(say);
}

struct sampler *sampler_open(const char *folder, double period_ms, struct fault *fault) {
    char path[PATH_BYTES];
    size_t count = 0;
    if (!join_path(path, folder, "nodes")) {
        fault_say(fault, RUNNER_IO, "the folder's path is too long");
        return NULL;
    }
    char *text = read_whole(path, NODES_BYTES_MAX, &count);
    struct sampler *sampler = text == NULL ? NULL : calloc(1, sizeof *sampler);
    text = sampler == NULL ? NULL : realloc(text, count + 1);
    if (text == NULL) {
        return NULL;
    }
    sampler->core = -1;
    double period = period_ms > PERIOD_MIN_MS ? period_ms : PERIOD_MIN_MS;
    sampler->period_ns = (int64_t)(period * 1e6);
    if (!add_nodes(sampler, text, count) ||
        !say_open(&sampler->say, folder, "readings.jsonl", true, SAY_ROOM, &sampler->fault)) {
        *fault = sampler->fault;
        return NULL;
    }
    open_nodes(sampler);
    say_nodes(sampler);
    if (!say_flush(&sampler->say)) {
        *fault = sampler->fault;
        return NULL;
    }
    return sampler;
}

/* -- one reading */

static bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

/* Whether the text is an integer as JSON has them, of 18 digits at most. */
static bool is_integer(const char *text, size_t length) {
    size_t sign = length > 0 && text[0] == '-';
    if (length - sign < 1 || length - sign > 18 || (text[sign] == '0' && length - sign > 1)) {
        return false;
    }
    for (size_t i = sign; i < length; i++) {
        if (!is_digit(text[i])) {
            return false;
        }
    }
    return true;
}

static int64_t integer_of(const char *text, size_t length) {
    int64_t number = 0;
    for (size_t i = text[0] == '-'; i < length; i++) {
        number = number * 10 + (text[i] - '0');
    }
    return text[0] == '-' ? -number : number;
}

/* So many bytes that no character is cut. */
static size_t whole_characters(const char *text, size_t length, size_t most) {
    if (length <= most) {
        return length;
    }
    while (most > 0 && ((unsigned char)text[most] & 0xc0) == 0x80) {
        most--;
    }
    return most;
}

static bool is_space(char letter) { return letter == ' ' || (letter >= '\t' && letter <= '\r'); }

static void say_first_line(struct say *say, const char *text, size_t length) {
    const char *stop = memchr(text, '\n', length);
    length = stop == NULL ? length : (size_t)(stop - text);
    while (length > 0 && (is_space(text[length - 1]) || text[length - 1] == '\0')) {
        length--;
    }
    while (length > 0 && is_space(*text)) {
        text++;
        length--;
    }
    if (is_integer(text, length)) {
        say_int(say, NULL, integer_of(text, length));
    } else {
        say_text(say, NULL, text, whole_characters(text, length, TEXT_BYTES_MAX));
    }
}

static void say_all_lines(struct say *say, char *text, size_t length) {
    while (length > 0 && text[length - 1] == '\n') {
        length--;
    }
    length = whole_characters(text, length, WHOLE_BYTES_MAX);
    for (char *at = text; (at = memchr(at, '\n', (size_t)(text + length - at))) != NULL;) {
        *at = ';';
    }
    say_text(say, NULL, text, length);
}

/* One line "cpuN user nice system idle iowait irq softirq steal ..." as "N:BUSY/TOTAL". */
static size_t put_core(char *text, const char *at, const char *end) {
    uint64_t core = 0, total = 0, idle = 0;
    for (at += 3; at < end && is_digit(*at); at++) {
        core = core * 10 + (uint64_t)(*at - '0');
    }
    /* Guests, the ninth and tenth number, are counted under user already. */
    for (int column = 0; column < 8 && at < end && *at == ' '; column++) {
        uint64_t ticks = 0;
        for (at++; at < end && is_digit(*at); at++) {
            ticks = ticks * 10 + (uint64_t)(*at - '0');
        }
        total += ticks;
        idle += column == 3 || column == 4 ? ticks : 0;
    }
    size_t used = print_whole(text, core, 10);
    text[used++] = ':';
    used += print_whole(text + used, total - idle, 10);
    text[used++] = '/';
    return used + print_whole(text + used, total, 10);
}

static void say_cores(struct say *say, const char *text, size_t length) {
    char cores[4096];
    size_t used = 0;
    const char *end = text + length;
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (stop == NULL || stop - line < 4 || memcmp(line, "cpu", 3) != 0 ||
            used > sizeof cores - 80) {
            break; /* cores stand first */
        }
        if (is_digit(line[3])) {
            if (used > 0) {
                cores[used++] = ' ';
            }
            used += put_core(cores + used, line, stop);
        }
        line = stop + 1;
    }
    say_text(say, NULL, cores, used);
}

static void say_node(struct sampler *sampler, struct node *node) {
    struct say *say = &sampler->say;
    size_t size = node->form == FORM_CORES   ? NODE_BYTES
                  : node->form == FORM_WHOLE ? 2 * WHOLE_BYTES_MAX
                                             : 2 * TEXT_BYTES_MAX;
    ssize_t count = node->file < 0 ? -1 : pread(node->file, sampler->bytes, size, 0);
    if (count < 0 || say_room(say) < 6 * WHOLE_BYTES_MAX + 2 * NODES_MAX * 5) {
        if (node->file >= 0 && count < 0) {
            close(node->file); /* a core that went away takes its nodes along, and brings new ones */
            node->file = -1;
        }
        say_null(say, NULL);
    } else if (node->form == FORM_CORES) {
        say_cores(say, sampler->bytes, (size_t)count);
    } else if (node->form == FORM_WHOLE) {
        say_all_lines(say, sampler->bytes, (size_t)count);
    } else {
        say_first_line(say, sampler->bytes, (size_t)count);
    }
}

static void look(struct sampler *sampler) {
    struct say *say = &sampler->say;
    say_begin(say, "reading");
    say_int(say, "t_ns", now_ns());
    say_open_list(say, "v", '[');
    for (int i = 0; i < sampler->nodes; i++) {
        say_node(sampler, &sampler->node[i]);
    }
    say_close_list(say, ']');
    say_end(say);
    sampler->readings++;
}

/* -- the loop */

static void note_lateness(struct sampler *sampler, int64_t late_ns) {
    int64_t bin = late_ns < 0 ? 0 : late_ns / 1000;
    sampler->late[bin < LATE_BINS ? bin : LATE_BINS - 1]++;
    sampler->late_max_ns = late_ns > sampler->late_max_ns ? late_ns : sampler->late_max_ns;
}

static int64_t lateness(const struct sampler *sampler, double share) {
    int64_t wanted = (int64_t)(share * (double)sampler->readings), seen = 0;
    for (int bin = 0; bin < LATE_BINS - 1; bin++) {
        seen += sampler->late[bin];
        if (seen > wanted) {
            return (int64_t)bin * 1000 + 500;
        }
    }
    return sampler->late_max_ns;
}

static void flush_if_due(struct sampler *sampler, int64_t now) {
    if (now - sampler->flushed >= FLUSH_NS || sampler->say.used > SAY_ROOM / 2) {
        sampler->flushed = now;
        if (!say_flush(&sampler->say)) {
            atomic_store(&sampler->failed, true);
        }
        open_nodes(sampler);
    }
}

static bool goes_on(const struct sampler *sampler) {
    return !atomic_load(&sampler->ending) && !atomic_load(&sampler->failed) &&
           !(sampler->alone && stop_asked());
}

void sampler_look_until(struct sampler *sampler, int64_t end_ns) {
    int64_t cpu_before = thread_cpu_ns();
    int64_t due = now_ns();
    wake_sharply();
    sampler->flushed = due;
    while (goes_on(sampler) && due <= end_ns) {
        sleep_until(due);
        int64_t woken = now_ns();
        if (woken < due) {
            continue; /* a signal came first */
        }
        note_lateness(sampler, woken - due);
        look(sampler);
        flush_if_due(sampler, woken);
        /* A moment that has passed is not made up for. */
        due += sampler->period_ns * (1 + (now_ns() - due) / sampler->period_ns);
    }
    if (!say_flush(&sampler->say)) {
        atomic_store(&sampler->failed, true);
    }
    sampler->cpu_ns = thread_cpu_ns() - cpu_before;
}

/* -- beside a run */

/* The highest core outside the mask would be a fast one; the lowest seldom is. */
static void find_a_place(struct sampler *sampler) {
    uint64_t outside = system_online() & ~sampler->mask;
    for (int core = 0; core < 64; core++) {
        if ((outside >> core & 1) != 0 && system_place(UINT64_C(1) << core)) {
            sampler->core = core;
            return;
        }
    }
    system_place(sampler->mask);
}

static void wake(int signal_number) { (void)signal_number; }

static void *look_beside(void *context) {
    struct sampler *sampler = context;
    find_a_place(sampler);
    sampler_look_until(sampler, INT64_MAX);
    atomic_store(&sampler->left, true);
    return NULL;
}

struct sampler *sampler_beside(const char *folder, double period_ms, uint64_t mask,
                               struct fault *fault) {
    struct sampler *sampler = sampler_open(folder, period_ms, fault);
    if (sampler == NULL) {
        return NULL;
    }
    sampler->mask = mask;
    signal(SIGUSR1, wake);
    if (pthread_create(&sampler->thread, NULL, look_beside, sampler) != 0) {
        fault_say(fault, RUNNER_OUT_OF_MEMORY, "the sampler's thread cannot be started");
        return NULL;
    }
    return sampler;
}

bool sampler_failed(const struct sampler *sampler) { return atomic_load(&sampler->failed); }

static void say_cost(const struct sampler *sampler, struct say *say) {
    say_begin(say, "sampler");
    say_int(say, "readings", sampler->readings);
    say_int(say, "cpu_ns", sampler->cpu_ns);
    say_int(say, "late_p50_ns", lateness(sampler, 0.50));
    say_int(say, "late_p99_ns", lateness(sampler, 0.99));
    say_int(say, "late_max_ns", sampler->late_max_ns);
    say_int(say, "core", sampler->core);
    say_end(say);
}

bool sampler_end(struct sampler *sampler, struct say *say, struct fault *fault) {
    atomic_store(&sampler->ending, true);
    while (!atomic_load(&sampler->left)) {
        pthread_kill(sampler->thread, SIGUSR1); /* out of its sleep, if it was in one already */
        sleep_until(now_ns() + 500000);
    }
    pthread_join(sampler->thread, NULL);
    say_cost(sampler, say);
    if (sampler->fault.exit != RUNNER_DONE && fault->exit == RUNNER_DONE) {
        *fault = sampler->fault;
    }
    return fault->exit == RUNNER_DONE;
}

int sample(const struct sample_settings *settings) {
    struct fault fault = {RUNNER_DONE, ""};
    listen_for_stop();
    struct sampler *sampler = sampler_open(settings->folder, settings->period_ms, &fault);
    if (sampler == NULL) {
        fault_say(&fault, RUNNER_IO, "%.200s/nodes cannot be read; list the nodes there first",
                  settings->folder);
        return say_fault(NULL, &fault);
    }
    sampler->alone = true;
    sampler_look_until(sampler, now_ns() + (int64_t)(settings->seconds * 1e9));
    if (stop_asked()) {
        fault_say(&sampler->fault, RUNNER_STOPPED, "stopped by SIGTERM");
    }
    if (sampler->fault.exit != RUNNER_DONE) {
        return say_fault(NULL, &sampler->fault);
    }
    struct say aloud;
    say_aloud(&aloud, &fault);
    say_cost(sampler, &aloud);
    return say_flush(&aloud) ? RUNNER_DONE : (int)fault.exit;
}
