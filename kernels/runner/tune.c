/* tune.c - the command `tune`: times variants of the matrix product on the device, so that a search
 * on a computer can choose.
 *
 * The one rule: candidates take turns. Whatever slows the phone down slows all of them down, and
 * the fastest time of a candidate is what it can achieve. */
#include <string.h>

#include "../engine/os.h"
#include "commands.h"

#ifdef RUNNER_STATIC

int tune_main(const struct tune_settings *settings) {
    struct fault fault = {STATUS_DONE, ""};
    device_open(NULL, NULL, &settings->device, &fault); /* sets the fault */
    return report_fault(NULL, &fault);
}

#else

#include <stdlib.h>

#include "../engine/executor.h"
#include "../engine/opencl/launch.h"
#include "../engine/random.h"

enum { CANDIDATES_MAX = 4096, CANDIDATES_BYTES_MAX = 1 << 20, TIMED_COMMANDS = 16 };

static const int64_t TURN_NS = 20000000;

/* One variant with its parameters, and its result. */
struct candidate {
    struct tuned spec;
    int first, last; /* launches of the session */
    const struct program *program;
    int64_t build_ns, launches, wall_ns;
    struct device_times single; /* of the fastest product that was launched alone */
    double error;
    struct fault fault;
};

/* The product of the current candidates, as an operation of a plan would be. */
struct tuning_bench {
    struct session session;
    struct tensor tensor[3];
    cl_handle memory[3];
    struct op op;
};

static cl_handle memory_of(void *owner, const struct tensor *tensor) {
    const struct tuning_bench *bench = owner;
    return bench->memory[tensor - bench->tensor];
}

static bool is_same_product(const struct tuned *one, const struct tuned *other) {
    return one->m == other->m && one->n == other->n && one->k == other->k &&
           one->transpose_a == other->transpose_a && one->transpose_b == other->transpose_b;
}

/* Allocates A, B and C for a product and fills A and B. */
static bool allocate_matrices(struct tuning_bench *bench, const struct tuned *spec,
                              struct fault *fault) {
    static const struct op_kind kind = {.name = "sgemm"};
    const int64_t sides[3][2] = {{spec->m, spec->k}, {spec->k, spec->n}, {spec->m, spec->n}};
    bench->op = (struct op){.kind = &kind, .ins = 2, .outs = 1, .ints = 2};
    bench->op.i[0] = spec->transpose_a;
    bench->op.i[1] = spec->transpose_b;
    for (int i = 0; i < 3; i++) {
        struct tensor *tensor = &bench->tensor[i];
        bool transposed = i < 2 && bench->op.i[i] != 0;
        free(tensor->data);
        *tensor = (struct tensor){.rank = 2, .count = sides[i][0] * sides[i][1]};
        tensor->dim[0] = sides[i][transposed];
        tensor->dim[1] = sides[i][!transposed];
        tensor->data = calloc((size_t)tensor->count, 4);
        bench->memory[i] = session_buffer(&bench->session, (size_t)tensor->count * 4, false, fault);
        if (tensor->data == NULL || bench->memory[i] == NULL) {
            return fault_set(fault, STATUS_OUT_OF_MEMORY,
                             "not enough memory for a product of %d x %d x %d; use smaller sizes",
                             spec->m, spec->n, spec->k);
        }
        uint64_t key = random_key(17, (uint64_t)i);
        for (int64_t at = 0; at < tensor->count && i < 2; at++) {
            floats(tensor)[at] = random_uniform(key, (uint64_t)at, 1.0f);
        }
        session_copy(&bench->session, bench->memory[i], tensor->data, (size_t)tensor->count * 4,
                     true, true, PHASE_LOAD);
    }
    bench->op.in[0] = &bench->tensor[0];
    bench->op.in[1] = &bench->tensor[1];
    bench->op.out[0] = &bench->tensor[2];
    return true;
}

/* Builds the launches of a candidate. Where that fails, the fault is the candidate's, not the
 * run's. */
static void add_candidate(struct tuning_bench *bench, struct candidate *candidate) {
    struct session *session = &bench->session;
    struct matmul matmul;
    int64_t build_ns = session->facts.build_ns;
    candidate->first = session->launches;
    if (matmul_of(&matmul, &bench->tensor[0], candidate->spec.transpose_a, &bench->tensor[1],
                  candidate->spec.transpose_b, &bench->tensor[2], &candidate->fault)) {
        session_add_matmul(session, &matmul, candidate->spec.variant, candidate->spec.params,
                           &candidate->fault);
    }
    candidate->last = session->launches;
    candidate->program = session->launch[candidate->first].program;
    candidate->build_ns = session->facts.build_ns - build_ns;
}

/* Multiplies `times` times, waits, and returns the time. */
static int64_t multiply(struct tuning_bench *bench, struct candidate *candidate, int64_t times) {
    struct session *session = &bench->session;
    int64_t start = now_ns();
    for (int64_t i = 0; i < times; i++) {
        for (int at = candidate->first; at < candidate->last; at++) {
            session_launch(session, &session->launch[at], NULL, NULL);
        }
    }
    session_wait(session);
    if (session->fault.status != STATUS_DONE && candidate->fault.status == STATUS_DONE) {
        candidate->fault = session->fault;
    }
    session->fault = (struct fault){STATUS_DONE, ""};
    return now_ns() - start;
}

/* Multiplies once with timestamps, and keeps those of the fastest product; returns the time. */
static int64_t multiply_alone(struct tuning_bench *bench, struct candidate *candidate) {
    struct session *session = &bench->session;
    struct device_times times;
    /* Only these products record timestamps: they would add to the time of the turns. */
    session->timed_room = TIMED_COMMANDS;
    int64_t ns = multiply(bench, candidate, 1);
    session_collect_times(session, &times);
    session->timed_room = 0;
    bool faster = times.ns[DEVICE_COMPUTE] < candidate->single.ns[DEVICE_COMPUTE];
    if (!candidate->single.valid || (times.valid && faster)) {
        candidate->single = times;
    }
    return ns;
}

/* The first product warms up and is checked; the second tells how many products fill a turn. */
static void warm_up(struct tuning_bench *bench, struct candidate *candidate, int64_t min_launches) {
    struct session *session = &bench->session;
    const struct tensor *c = &bench->tensor[2];
    memset(c->data, 0, tensor_bytes(c));
    session_copy(session, bench->memory[2], c->data, tensor_bytes(c), true, true, PHASE_LOAD);
    multiply(bench, candidate, 1);
    session_copy(session, bench->memory[2], c->data, tensor_bytes(c), false, true, PHASE_LOAD);
    candidate->error = matmul_error(&bench->op);
    int64_t ns = multiply_alone(bench, candidate);
    candidate->launches = ns > 0 ? max_i64(TURN_NS / ns, min_launches) : min_launches;
}

/* Times the candidates [first, last), which have the same shape. */
static bool time_shape(struct tuning_bench *bench, struct candidate *candidate, int first, int last,
                       const struct tune_settings *settings, struct fault *fault) {
    struct session *session = &bench->session;
    session->launches = 0;
    if (!allocate_matrices(bench, &candidate[first].spec, fault)) {
        return false;
    }
    for (int i = first; i < last; i++) {
        add_candidate(bench, &candidate[i]);
    }
    if (!session_allocate_scratch(session, fault)) {
        return false;
    }
    for (int64_t round = -1; round < settings->rounds; round++) {
        for (int i = first; i < last; i++) {
            struct candidate *one = &candidate[i];
            if (one->fault.status != STATUS_DONE) {
                continue;
            }
            if (round < 0) {
                warm_up(bench, one, settings->launches);
                continue;
            }
            int64_t ns = multiply(bench, one, one->launches) / one->launches;
            one->wall_ns = round == 0 || ns < one->wall_ns ? ns : one->wall_ns;
            multiply_alone(bench, one);
        }
    }
    return true;
}

static void write_candidate(struct jsonl_writer *out, int number,
                            const struct candidate *candidate) {
    json_begin(out, "candidate");
    json_int(out, "number", number);
    if (candidate->fault.status != STATUS_DONE) {
        json_string(out, "fault", candidate->fault.text);
    } else {
        json_int(out, "build_ns", candidate->build_ns);
        json_int(out, "launches", candidate->launches);
        json_int(out, "wall_ns", candidate->wall_ns);
        json_int(out, "queue_ns", candidate->single.ns[DEVICE_QUEUE]);
        json_int(out, "compute_ns", candidate->single.ns[DEVICE_COMPUTE]);
        json_real(out, "error", candidate->error);
        write_program(out, candidate->program);
    }
    json_end(out);
    jsonl_flush(out);
}

/* Reads DIR/candidates, one per line; returns their number, or -1: fault. */
static int read_candidates(const char *folder, struct candidate **candidate, struct fault *fault) {
    char path[PATH_BYTES];
    size_t size = 0;
    char *text =
        join_path(path, folder, "candidates") ? read_file(path, CANDIDATES_BYTES_MAX, &size) : NULL;
    *candidate = calloc(CANDIDATES_MAX, sizeof **candidate);
    if (text == NULL || *candidate == NULL) {
        fault_set(fault, STATUS_IO, "cannot read %.200s: %s", path, os_error_text());
        return -1;
    }
    int count = 0;
    for (char *line = text, *end = text + size; line < end; count++) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        if (stop != NULL) {
            *stop = '\0';
        }
        if (stop == NULL || count == CANDIDATES_MAX ||
            !tuned_parse(line, &(*candidate)[count].spec)) {
            fault_set(fault, STATUS_USAGE,
                      "line %d of the candidates is not 'M N K TA TB VARIANT [NAME=VALUE ...]'",
                      count + 1);
            return -1;
        }
        line = stop + 1;
    }
    return count;
}

int tune_main(const struct tune_settings *settings) {
    static struct tuning_bench bench;
    static struct timed_command timed[TIMED_COMMANDS];
    struct fault fault = {STATUS_DONE, ""};
    struct candidate *candidate = NULL;
    struct jsonl_writer out;
    int count = read_candidates(settings->folder, &candidate, &fault);
    bench.session.owner = &bench;
    bench.session.memory_of = memory_of;
    bench.session.timed = timed;
    bool fine = count >= 0 && session_open(&bench.session, &settings->device, &fault);
    jsonl_to_stdout(&out, &fault);
    if (fine) {
        write_device(&out, &bench.session.facts);
    }
    for (int first = 0, last = 0; fine && first < count; first = last) {
        while (last < count && is_same_product(&candidate[first].spec, &candidate[last].spec)) {
            last++;
        }
        fine = time_shape(&bench, candidate, first, last, settings, &fault);
        for (int i = first; fine && i < last; i++) {
            write_candidate(&out, i, &candidate[i]);
        }
    }
    if (!fine) {
        return report_fault(NULL, &fault);
    }
    json_begin(&out, "done");
    json_int(&out, "candidates", count);
    json_int(&out, "t_ns", now_ns());
    json_end(&out);
    return jsonl_flush(&out) ? STATUS_DONE : (int)fault.status;
}

#endif
