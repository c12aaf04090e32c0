/* sampler.c - telemetry: reads nodes that are kept open, at absolute times.
 *
 * The one rule: sampling must not disturb what it measures. The sampler runs on a core outside the
 * mask where there is one, reads each node with one call, formats records without the C library,
 * and writes them about once per second. What all of this cost is measured and reported. */
#include "sampler.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../engine/os.h"
#include "../engine/thread_pool.h"
#include "commands.h"
#include "cycles.h"

enum {
    NODES_MAX = 256,
    NODES_BYTES_MAX = 48 * 1024,
    NODE_BYTES = 16 * 1024,
    TEXT_BYTES_MAX = 256,
    WHOLE_BYTES_MAX = 1024,
    LATE_BINS = 1 << 14, /* one microsecond per bin */
    BUFFER_BYTES = 1 << 17
};

static const int64_t FLUSH_NS = 900000000;
static const int64_t SLOW_NS = 200000000; /* masks and cycles are read again after this time */
static const double PERIOD_MIN_MS = 5;

enum form {
    FORM_LINE,
    FORM_CORES,
    FORM_WHOLE,
    FORM_TICKS,
    FORM_MEMORY,
    FORM_MASKS, /* from here on: no content of the node itself */
    FORM_CYCLES,
    FORMS
};

struct node {
    const char *path;
    enum form form;
    int file; /* -1: does not exist, or is not readable */
    int64_t read_at;
    char text[64]; /* of masks and cycles, when they were last read */
    size_t length;
};

struct sampler {
    struct jsonl_writer out;
    struct fault fault;
    struct node node[NODES_MAX];
    int nodes;
    int64_t period_ns, flushed;
    int64_t readings, late_max_ns, cpu_ns;
    uint32_t lateness_bins[LATE_BINS];
    uint64_t mask;
    const struct thread_pool *pool; /* of the work; NULL: the command `sample` */
    int core;
    pthread_t thread;
    bool is_command; /* the command `sample`, which SIGTERM ends at once */
    atomic_bool ending, failed, finished;
    char bytes[NODE_BYTES]; /* of the current node */
};

/* ---- the list of nodes ---- */

static bool add_node(struct sampler *sampler, char *line) {
    static const char *const forms[] = {"", "cores", "whole", "ticks", "memory", "masks", "cycles"};
    char *mark = strchr(line, '\t');
    struct node *node = &sampler->node[sampler->nodes];
    if (mark != NULL) {
        *mark++ = '\0';
    }
    if (*line == '\0') {
        return true;
    }
    if (sampler->nodes == NODES_MAX) {
        return fault_set(&sampler->fault, STATUS_USAGE, "DIR/nodes lists more than %d nodes",
                         NODES_MAX);
    }
    *node = (struct node){.path = line, .file = -1};
    for (int form = FORM_CORES; form < FORMS; form++) {
        if (mark != NULL && strcmp(mark, forms[form]) == 0) {
            node->form = (enum form)form;
        }
    }
    if (mark != NULL && node->form == FORM_LINE) {
        return fault_set(&sampler->fault, STATUS_USAGE,
                         "'%.40s' is not a node format; see the runner's contract", mark);
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
            stop = end; /* sampler_open() allocated one byte after the text */
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

static void write_nodes(struct sampler *sampler) {
    struct jsonl_writer *out = &sampler->out;
    json_begin(out, "nodes");
    json_open(out, "paths", '[');
    for (int i = 0; i < sampler->nodes; i++) {
        json_string(out, NULL, sampler->node[i].path);
    }
    json_close(out, ']');
    json_end(out);
}

struct sampler *sampler_open(const char *folder, double period_ms, struct fault *fault) {
    char path[PATH_BYTES];
    size_t count = 0;
    if (!join_path(path, folder, "nodes")) {
        fault_set(fault, STATUS_IO, "the path of the folder is too long");
        return NULL;
    }
    char *text = read_file(path, NODES_BYTES_MAX, &count);
    struct sampler *sampler = text == NULL ? NULL : calloc(1, sizeof *sampler);
    text = sampler == NULL ? NULL : realloc(text, count + 1);
    if (text == NULL) {
        return NULL;
    }
    sampler->core = -1;
    double period = period_ms > PERIOD_MIN_MS ? period_ms : PERIOD_MIN_MS;
    sampler->period_ns = (int64_t)(period * 1e6);
    if (!add_nodes(sampler, text, count) ||
        !jsonl_open(&sampler->out, folder, "readings.jsonl", true, BUFFER_BYTES, &sampler->fault)) {
        *fault = sampler->fault;
        return NULL;
    }
    open_nodes(sampler);
    write_nodes(sampler);
    if (!jsonl_flush(&sampler->out)) {
        *fault = sampler->fault;
        return NULL;
    }
    return sampler;
}

/* ---- one reading ---- */

static bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

/* Whether the text is a JSON integer of at most 18 digits. */
static bool is_json_integer(const char *text, size_t length) {
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

static int64_t parse_integer(const char *text, size_t length) {
    int64_t number = 0;
    for (size_t i = text[0] == '-'; i < length; i++) {
        number = number * 10 + (text[i] - '0');
    }
    return text[0] == '-' ? -number : number;
}

/* The longest prefix of at most `limit` bytes that does not cut a UTF-8 character. */
static size_t utf8_prefix(const char *text, size_t length, size_t limit) {
    if (length <= limit) {
        return length;
    }
    while (limit > 0 && ((unsigned char)text[limit] & 0xc0) == 0x80) {
        limit--;
    }
    return limit;
}

static bool is_space(char letter) { return letter == ' ' || (letter >= '\t' && letter <= '\r'); }

static void write_first_line(struct jsonl_writer *out, const char *text, size_t length) {
    const char *stop = memchr(text, '\n', length);
    length = stop == NULL ? length : (size_t)(stop - text);
    while (length > 0 && (is_space(text[length - 1]) || text[length - 1] == '\0')) {
        length--;
    }
    while (length > 0 && is_space(*text)) {
        text++;
        length--;
    }
    if (is_json_integer(text, length)) {
        json_int(out, NULL, parse_integer(text, length));
    } else {
        json_text(out, NULL, text, utf8_prefix(text, length, TEXT_BYTES_MAX));
    }
}

static void write_all_lines(struct jsonl_writer *out, char *text, size_t length) {
    while (length > 0 && text[length - 1] == '\n') {
        length--;
    }
    length = utf8_prefix(text, length, WHOLE_BYTES_MAX);
    for (char *at = text; (at = memchr(at, '\n', (size_t)(text + length - at))) != NULL;) {
        *at = ';';
    }
    json_text(out, NULL, text, length);
}

/* Formats a line "cpuN user nice system idle iowait irq softirq steal ..." as "N:BUSY/TOTAL". */
static size_t format_core(char *text, const char *at, const char *end) {
    uint64_t core = 0, total = 0, idle = 0;
    for (at += 3; at < end && is_digit(*at); at++) {
        core = core * 10 + (uint64_t)(*at - '0');
    }
    /* The ninth and tenth number, guest times, are included in user and nice. */
    for (int column = 0; column < 8 && at < end && *at == ' '; column++) {
        uint64_t ticks = 0;
        for (at++; at < end && is_digit(*at); at++) {
            ticks = ticks * 10 + (uint64_t)(*at - '0');
        }
        total += ticks;
        idle += column == 3 || column == 4 ? ticks : 0;
    }
    size_t used = format_integer(text, core, 10);
    text[used++] = ':';
    used += format_integer(text + used, total - idle, 10);
    text[used++] = '/';
    return used + format_integer(text + used, total, 10);
}

static void write_cores(struct jsonl_writer *out, const char *text, size_t length) {
    char cores[4096];
    size_t used = 0;
    const char *end = text + length;
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (stop == NULL || stop - line < 4 || memcmp(line, "cpu", 3) != 0 ||
            used > sizeof cores - 80) {
            break; /* the lines of the cores come first */
        }
        if (is_digit(line[3])) {
            if (used > 0) {
                cores[used++] = ' ';
            }
            used += format_core(cores + used, line, stop);
        }
        line = stop + 1;
    }
    json_text(out, NULL, cores, used);
}

/* Whether a thread may run on the one core that the runner gave it, and on no other. */
static bool is_pinned(const struct sampler *sampler, long thread, uint64_t mask) {
    int core = sampler->pool == NULL ? -1 : thread_pool_core_of(sampler->pool, thread);
    return core >= 0 && mask == UINT64_C(1) << core;
}

/* Reads the affinity mask of every thread in the folder of tasks, except that of the sampler. */
static size_t read_masks(struct sampler *sampler, int folder, char *text) {
    uint64_t all = UINT64_MAX, any = 0, threads = 0, unpinned = 0;
    long count;
    lseek(folder, 0, SEEK_SET);
    while ((count = syscall(SYS_getdents64, folder, sampler->bytes, NODE_BYTES)) > 0) {
        for (long at = 0; at < count;) {
            /* struct linux_dirent64: inode and offset (8 bytes each), length, type, name. */
            const char *entry = sampler->bytes + at;
            uint16_t length;
            uint64_t mask[16] = {0};
            memcpy(&length, entry + 16, sizeof length);
            at += length;
            long thread = is_digit(entry[19]) ? strtol(entry + 19, NULL, 10) : 0;
            if (thread > 0 && thread != syscall(SYS_gettid) &&
                syscall(SYS_sched_getaffinity, thread, sizeof mask, mask) > 0) {
                all &= mask[0];
                any |= mask[0];
                threads++;
                unpinned += !is_pinned(sampler, thread, mask[0]);
            }
        }
    }
    size_t used = format_integer(text, threads, 10);
    text[used++] = ' ';
    used += format_integer(text + used, threads == 0 ? 0 : all, 16);
    text[used++] = ' ';
    used += format_integer(text + used, any, 16);
    text[used++] = ' ';
    return used + format_integer(text + used, unpinned, 10);
}

static size_t read_cycles(char *text) {
    int64_t cycles, ns;
    if (!cycles_read(&cycles, &ns)) {
        return 0;
    }
    size_t used = format_integer(text, (uint64_t)cycles, 10);
    text[used++] = '/';
    return used + format_integer(text + used, (uint64_t)ns, 10);
}

/* What takes long to read, or interrupts the cores that are measured, is read less often. */
static void write_slow_value(struct sampler *sampler, struct node *node) {
    int64_t now = now_ns();
    if (node->length == 0 || now - node->read_at >= SLOW_NS) {
        node->read_at = now;
        node->length = node->form == FORM_MASKS ? read_masks(sampler, node->file, node->text)
                       : sampler->is_command    ? 0
                                                : read_cycles(node->text);
    }
    if (node->length == 0) {
        json_null(&sampler->out, NULL);
    } else {
        json_text(&sampler->out, NULL, node->text, node->length);
    }
}

static uint64_t parse_digits(const char *at) {
    uint64_t number = 0;
    while (is_space(*at)) {
        at++;
    }
    for (; is_digit(*at); at++) {
        number = number * 10 + (uint64_t)(*at - '0');
    }
    return number;
}

/* Writes the sum of words 14 and 15 of /proc/PID/stat: user and system time. */
static void write_ticks(struct jsonl_writer *out, const char *text) {
    const char *at = strrchr(text, ')'); /* the name of the process may contain anything */
    for (int word = 2; at != NULL && word < 14; word++) {
        at = strchr(at + 1, ' ');
    }
    const char *system = at == NULL ? NULL : strchr(at + 1, ' ');
    if (system == NULL) {
        json_null(out, NULL);
    } else {
        json_int(out, NULL, (int64_t)(parse_digits(at) + parse_digits(system)));
    }
}

static void write_memory_rows(struct jsonl_writer *out, const char *text) {
    static const char *const names[] = {"MemTotal:", "MemAvailable:", "SwapTotal:", "SwapFree:"};
    char rows[96];
    size_t used = 0;
    for (int i = 0; i < 4; i++) {
        const char *row = strstr(text, names[i]);
        if (row == NULL) {
            json_null(out, NULL);
            return;
        }
        if (used > 0) {
            rows[used++] = ' ';
        }
        used += format_integer(rows + used, parse_digits(row + strlen(names[i])), 10);
    }
    json_text(out, NULL, rows, used);
}

static void write_node_value(struct sampler *sampler, struct node *node) {
    struct jsonl_writer *out = &sampler->out;
    if (node->form >= FORM_MASKS && node->file >= 0) {
        write_slow_value(sampler, node);
        return;
    }
    size_t size = node->form == FORM_CORES                                ? NODE_BYTES - 1
                  : node->form == FORM_WHOLE || node->form == FORM_MEMORY ? 2 * WHOLE_BYTES_MAX
                                                                          : 2 * TEXT_BYTES_MAX;
    ssize_t count = node->file < 0 ? -1 : pread(node->file, sampler->bytes, size, 0);
    if (count < 0 || json_room(out) < 6 * WHOLE_BYTES_MAX + 2 * NODES_MAX * 5) {
        if (node->file >= 0 && count < 0) {
            /* The nodes of a core that goes offline disappear; new ones may appear later. */
            close(node->file);
            node->file = -1;
        }
        json_null(out, NULL);
        return;
    }
    sampler->bytes[count] = '\0';
    if (node->form == FORM_CORES) {
        write_cores(out, sampler->bytes, (size_t)count);
    } else if (node->form == FORM_WHOLE) {
        write_all_lines(out, sampler->bytes, (size_t)count);
    } else if (node->form == FORM_TICKS) {
        write_ticks(out, sampler->bytes);
    } else if (node->form == FORM_MEMORY) {
        write_memory_rows(out, sampler->bytes);
    } else {
        write_first_line(out, sampler->bytes, (size_t)count);
    }
}

static void take_reading(struct sampler *sampler) {
    struct jsonl_writer *out = &sampler->out;
    json_begin(out, "reading");
    json_int(out, "t_ns", now_ns());
    json_open(out, "v", '[');
    for (int i = 0; i < sampler->nodes; i++) {
        write_node_value(sampler, &sampler->node[i]);
    }
    json_close(out, ']');
    json_end(out);
    sampler->readings++;
}

/* ---- the loop ---- */

static void record_lateness(struct sampler *sampler, int64_t late_ns) {
    int64_t bin = late_ns < 0 ? 0 : late_ns / 1000;
    sampler->lateness_bins[bin < LATE_BINS ? bin : LATE_BINS - 1]++;
    sampler->late_max_ns = late_ns > sampler->late_max_ns ? late_ns : sampler->late_max_ns;
}

static int64_t lateness_percentile(const struct sampler *sampler, double fraction) {
    int64_t wanted = (int64_t)(fraction * (double)sampler->readings), seen = 0;
    for (int bin = 0; bin < LATE_BINS - 1; bin++) {
        seen += sampler->lateness_bins[bin];
        if (seen > wanted) {
            return (int64_t)bin * 1000 + 500;
        }
    }
    return sampler->late_max_ns;
}

static void flush_if_due(struct sampler *sampler, int64_t now) {
    if (now - sampler->flushed >= FLUSH_NS || sampler->out.used > BUFFER_BYTES / 2) {
        sampler->flushed = now;
        if (!jsonl_flush(&sampler->out)) {
            atomic_store(&sampler->failed, true);
        }
        open_nodes(sampler);
    }
}

static bool should_continue(const struct sampler *sampler) {
    return !atomic_load(&sampler->ending) && !atomic_load(&sampler->failed) &&
           !(sampler->is_command && stop_requested());
}

void sampler_run_until(struct sampler *sampler, int64_t end_ns) {
    int64_t cpu_before = thread_cpu_ns();
    int64_t due = now_ns();
    request_precise_wakeups();
    sampler->flushed = due;
    while (should_continue(sampler) && due <= end_ns) {
        sleep_until(due);
        int64_t woken = now_ns();
        if (woken < due) {
            continue; /* a signal ended the sleep early */
        }
        record_lateness(sampler, woken - due);
        take_reading(sampler);
        flush_if_due(sampler, woken);
        /* A reading that was missed is not made up for. */
        due += sampler->period_ns * (1 + (now_ns() - due) / sampler->period_ns);
    }
    if (!jsonl_flush(&sampler->out)) {
        atomic_store(&sampler->failed, true);
    }
    sampler->cpu_ns = thread_cpu_ns() - cpu_before;
}

/* ---- sampling during a run ---- */

/* Takes the lowest core outside the mask: the highest ones are usually the fast ones. */
static void choose_core(struct sampler *sampler) {
    uint64_t outside = online_cores() & ~sampler->mask;
    for (int core = 0; core < 64; core++) {
        if ((outside >> core & 1) != 0 && set_affinity(UINT64_C(1) << core)) {
            sampler->core = core;
            return;
        }
    }
    set_affinity(sampler->mask);
}

static void on_wakeup_signal(int signal_number) { (void)signal_number; }

static void *sampler_thread(void *context) {
    struct sampler *sampler = context;
    choose_core(sampler);
    sampler_run_until(sampler, INT64_MAX);
    atomic_store(&sampler->finished, true);
    return NULL;
}

struct sampler *sampler_start(const char *folder, double period_ms, uint64_t mask,
                              const struct thread_pool *pool, struct fault *fault) {
    struct sampler *sampler = sampler_open(folder, period_ms, fault);
    if (sampler == NULL) {
        return NULL;
    }
    sampler->mask = mask;
    sampler->pool = pool;
    signal(SIGUSR1, on_wakeup_signal);
    if (pthread_create(&sampler->thread, NULL, sampler_thread, sampler) != 0) {
        fault_set(fault, STATUS_OUT_OF_MEMORY, "cannot start the thread of the sampler");
        return NULL;
    }
    return sampler;
}

bool sampler_failed(const struct sampler *sampler) { return atomic_load(&sampler->failed); }

static void write_cost(const struct sampler *sampler, struct jsonl_writer *out) {
    json_begin(out, "sampler");
    json_int(out, "readings", sampler->readings);
    json_int(out, "cpu_ns", sampler->cpu_ns);
    json_int(out, "late_p50_ns", lateness_percentile(sampler, 0.50));
    json_int(out, "late_p99_ns", lateness_percentile(sampler, 0.99));
    json_int(out, "late_max_ns", sampler->late_max_ns);
    json_int(out, "core", sampler->core);
    json_end(out);
}

bool sampler_end(struct sampler *sampler, struct jsonl_writer *out, struct fault *fault) {
    atomic_store(&sampler->ending, true);
    while (!atomic_load(&sampler->finished)) {
        pthread_kill(sampler->thread, SIGUSR1); /* ends its sleep */
        sleep_until(now_ns() + 500000);
    }
    pthread_join(sampler->thread, NULL);
    write_cost(sampler, out);
    if (sampler->fault.status != STATUS_DONE && fault->status == STATUS_DONE) {
        *fault = sampler->fault;
    }
    return fault->status == STATUS_DONE;
}

int sample_main(const struct sample_settings *settings) {
    struct fault fault = {STATUS_DONE, ""};
    install_stop_handler();
    struct sampler *sampler = sampler_open(settings->folder, settings->period_ms, &fault);
    if (sampler == NULL) {
        fault_set(&fault, STATUS_IO, "cannot read %.200s/nodes; list the nodes there first",
                  settings->folder);
        return report_fault(NULL, &fault);
    }
    sampler->is_command = true;
    sampler_run_until(sampler, now_ns() + (int64_t)(settings->seconds * 1e9));
    if (stop_requested()) {
        fault_set(&sampler->fault, STATUS_STOPPED, "stopped by SIGTERM");
    }
    if (sampler->fault.status != STATUS_DONE) {
        return report_fault(NULL, &sampler->fault);
    }
    struct jsonl_writer to_stdout;
    jsonl_to_stdout(&to_stdout, &fault);
    write_cost(sampler, &to_stdout);
    return jsonl_flush(&to_stdout) ? STATUS_DONE : (int)fault.status;
}
