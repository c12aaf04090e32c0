/* tune.c - `tune`: times ways to multiply on the device, so that a search elsewhere can choose.
 *
 * The one rule: contenders take turns. What slows the phone down slows all of them down, and the
 * least time of each is what it can do. */
#include "verbs.h"

#include <string.h>

#include "system.h"

#ifdef RUNNER_STATIC

int tune(const struct tune_settings *settings) {
    struct fault fault = {RUNNER_DONE, ""};
    device_open(NULL, &settings->device, &fault); /* which says why there is none */
    return say_fault(NULL, &fault);
}

#else

#include <stdlib.h>

#include "../engine/opencl/session.h"
#include "../engine/random.h"
#include "../engine/work.h"

enum { CANDIDATES_MAX = 4096, CANDIDATES_BYTES_MAX = 1 << 20, NOTES = 16 };

static const int64_t TURN_NS = 20000000;

/* One way to multiply, with what came of it. */
struct candidate {
    struct tuned asked;
    int first, last; /* launches of the session */
    int64_t build_ns, launches, wall_ns;
    struct device_tally alone; /* of a product by itself */
    double error;
    struct fault fault;
};

/* The product of all candidates in turn, as an operation of a plan would be. */
struct bench {
    struct session session;
    struct tensor tensor[3];
    cl_handle memory[3];
    struct op op;
};

static cl_handle memory_of(void *owner, const struct tensor *tensor) {
    const struct bench *bench = owner;
    return bench->memory[tensor - bench->tensor];
}

static bool same_product(const struct tuned *one, const struct tuned *other) {
    return one->m == other->m && one->n == other->n && one->k == other->k &&
           one->turned_a == other->turned_a && one->turned_b == other->turned_b;
}

/* Lays A, B and C out for a product, with values in A and B. */
static bool lay_out(struct bench *bench, const struct tuned *asked, struct fault *fault) {
    static const struct op_kind kind = {.name = "sgemm"};
    const int64_t sides[3][2] = {{asked->m, asked->k}, {asked->k, asked->n}, {asked->m, asked->n}};
    bench->op = (struct op){.kind = &kind, .ins = 2, .outs = 1, .ints = 2};
    bench->op.i[0] = asked->turned_a;
    bench->op.i[1] = asked->turned_b;
    for (int i = 0; i < 3; i++) {
        struct tensor *tensor = &bench->tensor[i];
        bool turned = i < 2 && bench->op.i[i] != 0;
        free(tensor->data);
        *tensor = (struct tensor){.rank = 2, .count = sides[i][0] * sides[i][1]};
        tensor->dim[0] = sides[i][turned];
        tensor->dim[1] = sides[i][!turned];
        tensor->data = calloc((size_t)tensor->count, 4);
        bench->memory[i] = session_buffer(&bench->session, (size_t)tensor->count * 4, fault);
        if (tensor->data == NULL || bench->memory[i] == NULL) {
            return fault_say(fault, RUNNER_OUT_OF_MEMORY, "no memory for a product of %d x %d x %d",
                             asked->m, asked->n, asked->k);
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

/* Builds a candidate's launches; what it cannot be built for is its own fault, not the run's. */
static void prepare(struct bench *bench, struct candidate *candidate) {
    struct session *session = &bench->session;
    struct recipe recipe = {.line = recipe_find("sgemm", NULL), .op = &bench->op, .tuned = ""};
    struct product product;
    int64_t built = session->facts.build_ns;
    candidate->first = session->launches;
    if (!recipe_product(&recipe, &product)) {
        fault_say(&candidate->fault, RUNNER_UNSUPPORTED, "the product is too large");
    } else {
        session_multiply(session, &product, candidate->asked.way, candidate->asked.numbers,
                         &candidate->fault);
    }
    candidate->last = session->launches;
    candidate->build_ns = session->facts.build_ns - built;
}

/* Multiplies so many times and waits; answers the time. */
static int64_t multiply(struct bench *bench, struct candidate *candidate, int64_t times) {
    struct session *session = &bench->session;
    int64_t start = now_ns();
    for (int64_t i = 0; i < times; i++) {
        for (int at = candidate->first; at < candidate->last; at++) {
            session_launch(session, &session->launch[at], NULL, NULL);
        }
    }
    session_wait(session);
    if (session->fault.exit != RUNNER_DONE && candidate->fault.exit == RUNNER_DONE) {
        candidate->fault = session->fault;
    }
    session->fault = (struct fault){RUNNER_DONE, ""};
    return now_ns() - start;
}

/* The first product warms up and is checked, the second tells how many fill a turn. */
static void begin(struct bench *bench, struct candidate *candidate, int64_t least) {
    struct session *session = &bench->session;
    const struct tensor *c = &bench->tensor[2];
    struct device_tally unused;
    memset(c->data, 0, (size_t)c->count * 4);
    session_copy(session, bench->memory[2], c->data, (size_t)c->count * 4, true, true, PHASE_LOAD);
    multiply(bench, candidate, 1);
    session_copy(session, bench->memory[2], c->data, (size_t)c->count * 4, false, true, PHASE_LOAD);
    candidate->error = product_error(&bench->op);
    session_tell(session, &unused);
    int64_t one = multiply(bench, candidate, 1);
    session_tell(session, &candidate->alone);
    candidate->launches = one > 0 && TURN_NS / one > least ? TURN_NS / one : least;
}

/* The candidates [first, last) have one shape. */
static bool time_shape(struct bench *bench, struct candidate *candidate, int first, int last,
                       const struct tune_settings *settings, struct fault *fault) {
    struct session *session = &bench->session;
    session->launches = 0;
    if (!lay_out(bench, &candidate[first].asked, fault)) {
        return false;
    }
    for (int i = first; i < last; i++) {
        prepare(bench, &candidate[i]);
    }
    if (!session_take_scratch(session, fault)) {
        return false;
    }
    for (int64_t round = -1; round < settings->rounds; round++) {
        session->note_room = round < 0 ? NOTES : 0; /* stamps would cost the turns their time */
        for (int i = first; i < last; i++) {
            struct candidate *one = &candidate[i];
            if (one->fault.exit != RUNNER_DONE) {
                continue;
            }
            if (round < 0) {
                begin(bench, one, settings->launches);
                continue;
            }
            int64_t ns = multiply(bench, one, one->launches) / one->launches;
            one->wall_ns = round == 0 || ns < one->wall_ns ? ns : one->wall_ns;
        }
    }
    return true;
}

static void say_candidate(struct say *say, int number, const struct candidate *candidate) {
    say_begin(say, "candidate");
    say_int(say, "number", number);
    if (candidate->fault.exit != RUNNER_DONE) {
        say_word(say, "fault", candidate->fault.text);
    } else {
        say_int(say, "build_ns", candidate->build_ns);
        say_int(say, "launches", candidate->launches);
        say_int(say, "wall_ns", candidate->wall_ns);
        say_int(say, "queue_ns", candidate->alone.ns[DEVICE_QUEUE]);
        say_int(say, "compute_ns", candidate->alone.ns[DEVICE_COMPUTE]);
        say_real(say, "error", candidate->error);
    }
    say_end(say);
    say_flush(say);
}

/* DIR/candidates, a line each; the count, or -1. */
static int read_candidates(const char *folder, struct candidate **candidate, struct fault *fault) {
    char path[PATH_BYTES];
    size_t size = 0;
    char *text = join_path(path, folder, "candidates")
                     ? read_whole(path, CANDIDATES_BYTES_MAX, &size)
                     : NULL;
    *candidate = calloc(CANDIDATES_MAX, sizeof **candidate);
    if (text == NULL || *candidate == NULL) {
        fault_say(fault, RUNNER_IO, "%.200s: %s", path, system_reason());
        return -1;
    }
    int count = 0;
    for (char *line = text, *end = text + size; line < end; count++) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        if (stop != NULL) {
            *stop = '\0';
        }
        if (stop == NULL || count == CANDIDATES_MAX ||
            !tuned_record(line, &(*candidate)[count].asked)) {
            fault_say(fault, RUNNER_USAGE,
                      "line %d of the candidates is not 'M N K TA TB WAY [NAME=VALUE ...]'",
                      count + 1);
            return -1;
        }
        line = stop + 1;
    }
    return count;
}

int tune(const struct tune_settings *settings) {
    static struct bench bench;
    static struct note notes[NOTES];
    struct fault fault = {RUNNER_DONE, ""};
    struct candidate *candidate = NULL;
    struct say aloud;
    int count = read_candidates(settings->folder, &candidate, &fault);
    bench.session.owner = &bench;
    bench.session.memory_of = memory_of;
    bench.session.note = notes;
    bool fine = count >= 0 && session_open(&bench.session, &settings->device, &fault);
    say_aloud(&aloud, &fault);
    if (fine) {
        say_device(&aloud, &bench.session.facts);
    }
    for (int first = 0, last = 0; fine && first < count; first = last) {
        while (last < count && same_product(&candidate[first].asked, &candidate[last].asked)) {
            last++;
        }
        fine = time_shape(&bench, candidate, first, last, settings, &fault);
        for (int i = first; fine && i < last; i++) {
            say_candidate(&aloud, i, &candidate[i]);
        }
    }
    if (!fine) {
        return say_fault(NULL, &fault);
    }
    say_begin(&aloud, "done");
    say_int(&aloud, "candidates", count);
    say_int(&aloud, "t_ns", now_ns());
    say_end(&aloud);
    return say_flush(&aloud) ? RUNNER_DONE : (int)fault.exit;
}

#endif
