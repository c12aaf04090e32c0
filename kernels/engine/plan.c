/* plan.c - reads a plan without trust.
 *
 * The one rule: whatever passes here is safe to run. Every number is a number within its limits,
 * every tensor lies in its arena, every operation has said that it can run with these operands.
 * The first line that breaks the grammar is named in the fault, and nothing is read after it. */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

enum {
    WORDS_MAX = 2 * OPERANDS_MAX + INTS_MAX + FLOATS_MAX + 8,
    TENSORS_MAX = 1 << 20,
    OPS_MAX = 1 << 18,
    ENTRY_MAX = 1 << 18
};

static const int64_t BYTES_MAX = INT64_C(1) << 42; /* of an arena: more than any phone has */

static const char *const TYPE_NAMES[] = {"float", "index", "byte", NULL};
static const char *const ARENA_NAMES[] = {"parameter", "gradient", "state", "activation", "input",
                                          NULL};
static const char *const PHASE_NAMES[] = {"load", "forward", "backward", "update", "evaluate",
                                          NULL};
static const char *const INIT_NAMES[] = {"none", "zero", "constant", "uniform", "normal", NULL};

/* What is left of the body, and the line in hand, cut to words. */
struct reader {
    char *at, *end;
    int line;
    char *word[WORDS_MAX];
    int words;
    struct fault *fault;
};

static bool refuse(struct reader *reader, const char *what) {
    return fault_say(reader->fault, RUNNER_BAD_PLAN, "line %d of the plan's body: %s", reader->line,
                     what);
}

static bool refuse_word(struct reader *reader, const char *word, const char *what) {
    return fault_say(reader->fault, RUNNER_BAD_PLAN, "line %d of the plan's body: '%.40s' %s",
                     reader->line, word, what);
}

/* Cuts the next line to words: printable, apart by one space. */
static bool next_line(struct reader *reader) {
    reader->line++;
    reader->words = 0;
    char *stop = memchr(reader->at, '\n', (size_t)(reader->end - reader->at));
    if (stop == NULL) {
        return refuse(reader, "the plan ends here, before its 'end'; push it again");
    }
    *stop = '\0';
    char *word = reader->at;
    for (char *at = reader->at; at <= stop; at++) {
        if (at < stop && *at != ' ') {
            if (*at < '!' || *at > '~') {
                return refuse(reader, "holds something that is neither a word nor a space");
            }
            continue;
        }
        if (at == word) {
            return refuse(reader, "words have to be apart by exactly one space");
        }
        if (reader->words == WORDS_MAX) {
            return refuse(reader, "has too many words");
        }
        *at = '\0';
        reader->word[reader->words++] = word;
        word = at + 1;
    }
    reader->at = stop + 1;
    return true;
}

static bool expect(struct reader *reader, const char *name, int words) {
    if (!next_line(reader)) {
        return false;
    }
    if (strcmp(reader->word[0], name) != 0 || reader->words != words) {
        return fault_say(reader->fault, RUNNER_BAD_PLAN,
                         "line %d of the plan's body: '%s' with %d words has to stand here",
                         reader->line, name, words - 1);
    }
    return true;
}

static bool read_int(struct reader *reader, const char *word, int64_t least, int64_t most,
                     int64_t *value) {
    const char *digit = word + (*word == '-');
    size_t digits = strlen(digit);
    if (digits == 0 || digits > 18 || strspn(digit, "0123456789") != digits) {
        return refuse_word(reader, word, "is not a whole number");
    }
    int64_t number = 0;
    for (; *digit != '\0'; digit++) {
        number = number * 10 + (*digit - '0');
    }
    *value = *word == '-' ? -number : number;
    if (*value < least || *value > most) {
        return refuse_word(reader, word, "is out of range");
    }
    return true;
}

static bool read_float(struct reader *reader, const char *word, float *value) {
    double number = 0;
    if (!parse_number(word, &number) || !(number >= -3e38 && number <= 3e38)) {
        return refuse_word(reader, word, "is not a number");
    }
    *value = (float)number;
    return true;
}

static bool read_name(struct reader *reader, const char *word, const char *const *names,
                      const char *what, int *number) {
    for (*number = 0; names[*number] != NULL; ++*number) {
        if (strcmp(word, names[*number]) == 0) {
            return true;
        }
    }
    return refuse_word(reader, word, what);
}

static bool read_case(struct reader *reader, struct plan *plan) {
    if (!expect(reader, "case", 2)) {
        return false;
    }
    if (strlen(reader->word[1]) >= CASE_BYTES) {
        return refuse(reader, "the case's digest is too long");
    }
    strcpy(plan->digest, reader->word[1]);
    return true;
}

static bool read_backend(struct reader *reader, struct plan *plan) {
    if (!expect(reader, "backend", 2)) {
        return false;
    }
    plan->opencl = strcmp(reader->word[1], "opencl") == 0;
    if (!plan->opencl && strcmp(reader->word[1], cpu_backend.name) != 0) {
        return fault_say(reader->fault, RUNNER_UNSUPPORTED, "backend '%.40s' is not built in",
                         reader->word[1]);
    }
    return true;
}

static bool read_setting(struct reader *reader, const char *name, int64_t least, int64_t most,
                         int64_t *value) {
    return expect(reader, name, 2) && read_int(reader, reader->word[1], least, most, value);
}

static bool read_settings(struct reader *reader, struct plan *plan) {
    int64_t threads = 0, training = 0, seed = 0;
    if (!read_setting(reader, "threads", 1, THREADS_MAX, &threads) ||
        !read_setting(reader, "training", 0, 1, &training) ||
        !read_setting(reader, "samples", 1, 1 << 24, &plan->samples) ||
        !read_setting(reader, "seed", 0, INT64_MAX, &seed) ||
        !read_setting(reader, "evaluate", 0, INT64_MAX, &plan->evaluate)) {
        return false;
    }
    plan->threads = (int)threads;
    plan->training = training == 1;
    plan->seed = (uint64_t)seed;
    return true;
}

static bool read_arenas(struct reader *reader, struct plan *plan) {
    for (int arena = 0; arena < ARENAS; arena++) {
        int64_t size = 0;
        if (!expect(reader, "arena", 3)) {
            return false;
        }
        if (strcmp(reader->word[1], ARENA_NAMES[arena]) != 0) {
            return refuse_word(reader, reader->word[1], "is not the arena whose turn it is");
        }
        if (!read_int(reader, reader->word[2], 0, BYTES_MAX, &size)) {
            return false;
        }
        plan->arena[arena] = (size_t)size;
    }
    return true;
}

/* RANK DIM... from word `at` on; answers the word behind them, or 0. */
static int read_shape(struct reader *reader, int at, int *rank, int64_t *dim, int64_t *count) {
    int64_t number = 0;
    if (at >= reader->words || !read_int(reader, reader->word[at], 0, RANK_MAX, &number)) {
        refuse(reader, "has no shape");
        return 0;
    }
    *rank = (int)number;
    if (at + 1 + *rank > reader->words) {
        refuse(reader, "has fewer dimensions than its rank says");
        return 0;
    }
    *count = 1;
    for (int axis = 0; axis < *rank; axis++) {
        if (!read_int(reader, reader->word[at + 1 + axis], 1, BYTES_MAX, &dim[axis])) {
            return 0;
        }
        if (*count > BYTES_MAX / dim[axis]) {
            refuse(reader, "has more values than any memory holds");
            return 0;
        }
        *count *= dim[axis];
    }
    return at + 1 + *rank;
}

/* stream N TYPE COUNT RANK DIM... GENERATOR INT... | FLOAT... */
static bool read_stream(struct reader *reader, struct plan *plan) {
    if (plan->streams == STREAMS_MAX) {
        return refuse(reader, "there are too many streams");
    }
    struct stream *stream = &plan->stream[plan->streams];
    int type = 0;
    int64_t number = 0, values = 0;
    if (reader->words < 6) {
        return refuse(reader, "a stream has a number, a type, a count, a shape and a generator");
    }
    if (!read_int(reader, reader->word[1], plan->streams, plan->streams, &number) ||
        !read_name(reader, reader->word[2], TYPE_NAMES, "is no type", &type) ||
        !read_int(reader, reader->word[3], 1, INT64_C(1) << 40, &stream->count)) {
        return false;
    }
    stream->type = (enum type)type;
    int at = read_shape(reader, 4, &stream->rank, stream->dim, &values);
    if (at == 0 || at >= reader->words) {
        return refuse(reader, "a stream ends with its generator");
    }
    if (values > BYTES_MAX / stream->count) {
        return refuse(reader, "has more values than any memory holds");
    }
    stream->generator = generator_named(reader->word[at]);
    if (stream->generator == GENERATORS) {
        return refuse_word(reader, reader->word[at], "makes no data that this build knows");
    }
    for (at++; at < reader->words && strcmp(reader->word[at], "|") != 0; at++) {
        if (stream->ints == STREAM_INTS_MAX) {
            return refuse(reader, "has too many whole numbers");
        }
        if (!read_int(reader, reader->word[at], INT64_MIN, INT64_MAX, &stream->i[stream->ints++])) {
            return false;
        }
    }
    if (at == reader->words) {
        return refuse(reader, "a stream has a '|' between its whole numbers and the others");
    }
    for (at++; at < reader->words; at++) {
        if (stream->reals == STREAM_FLOATS_MAX) {
            return refuse(reader, "has too many numbers");
        }
        if (!read_float(reader, reader->word[at], &stream->f[stream->reals++])) {
            return false;
        }
    }
    const char *why = stream_check(stream);
    if (why != NULL) {
        return refuse_word(reader, reader->word[1], why);
    }
    plan->streams++;
    return true;
}

static size_t bytes_of(enum type type) { return type == TYPE_BYTE ? 1 : 4; }

static bool read_init(struct reader *reader, int at, struct tensor *tensor) {
    int init = 0;
    if (at >= reader->words ||
        !read_name(reader, reader->word[at], INIT_NAMES, "is no initial value", &init)) {
        return refuse(reader, "a tensor ends with its initial value");
    }
    tensor->init = (enum init)init;
    bool has_value = init >= INIT_CONSTANT;
    if (reader->words != at + 1 + has_value) {
        return refuse(reader, "the initial value has too many or too few words");
    }
    if (has_value && tensor->type != TYPE_FLOAT) {
        return refuse(reader, "only floats have initial values other than zero");
    }
    return !has_value || read_float(reader, reader->word[at + 1], &tensor->init_value);
}

/* tensor N TYPE ARENA OFFSET RANK DIM... INIT [FLOAT] */
static bool read_tensor(struct reader *reader, struct plan *plan) {
    struct tensor *tensor = &plan->tensor[plan->tensors];
    int type = 0, arena = 0;
    int64_t number = 0, offset = 0;
    if (reader->words < 7) {
        return refuse(reader, "a tensor has a number, a type, a place, a shape and a first value");
    }
    if (!read_int(reader, reader->word[1], plan->tensors, plan->tensors, &number) ||
        !read_name(reader, reader->word[2], TYPE_NAMES, "is no type", &type) ||
        !read_name(reader, reader->word[3], ARENA_NAMES, "is no arena", &arena) ||
        !read_int(reader, reader->word[4], 0, BYTES_MAX, &offset)) {
        return false;
    }
    tensor->type = (enum type)type;
    tensor->arena = (enum arena)arena;
    tensor->offset = (size_t)offset;
    int at = read_shape(reader, 5, &tensor->rank, tensor->dim, &tensor->count);
    if (at == 0 || !read_init(reader, at, tensor)) {
        return false;
    }
    if (offset % ALIGNMENT != 0) {
        return refuse(reader, "the tensor's place is not a multiple of 64");
    }
    size_t bytes = (size_t)tensor->count * bytes_of(tensor->type);
    if (tensor->offset + bytes > plan->arena[arena]) {
        return refuse_word(reader, reader->word[1], "does not lie within its arena");
    }
    plan->tensors++;
    return true;
}

/* Tensor numbers up to the next ":"; answers the word behind it, or 0. */
static int read_operands(struct reader *reader, const struct plan *plan, int at,
                         const struct tensor **operand, int *count) {
    for (; at < reader->words && strcmp(reader->word[at], ":") != 0; at++) {
        int64_t number = 0;
        if (*count == OPERANDS_MAX) {
            refuse(reader, "the operation has too many operands");
            return 0;
        }
        if (strcmp(reader->word[at], "-") == 0) {
            operand[(*count)++] = NULL;
            continue;
        }
        if (!read_int(reader, reader->word[at], 0, plan->tensors - 1, &number)) {
            return 0;
        }
        operand[(*count)++] = &plan->tensor[number];
    }
    if (at == reader->words) {
        refuse(reader, "an operation has three ':' between its operands and its numbers");
        return 0;
    }
    return at + 1;
}

static bool read_numbers(struct reader *reader, int at, struct op *op) {
    for (; at < reader->words && strcmp(reader->word[at], ":") != 0; at++) {
        if (op->ints == INTS_MAX) {
            return refuse(reader, "the operation has too many whole numbers");
        }
        if (!read_int(reader, reader->word[at], INT64_MIN, INT64_MAX, &op->i[op->ints++])) {
            return false;
        }
    }
    if (at == reader->words) {
        return refuse(reader, "an operation has three ':' between its operands and its numbers");
    }
    for (at++; at < reader->words; at++) {
        if (op->reals == FLOATS_MAX) {
            return refuse(reader, "the operation has too many numbers");
        }
        if (!read_float(reader, reader->word[at], &op->f[op->reals++])) {
            return false;
        }
    }
    return true;
}

static bool check_op(struct reader *reader, const struct plan *plan, const struct op *op) {
    const char *why = op->kind->check(op);
    if (why == NULL && strcmp(op->kind->name, "load") == 0) {
        why = load_check(op, plan->stream, plan->streams);
    }
    if (why != NULL) {
        return fault_say(reader->fault, RUNNER_BAD_PLAN, "line %d of the plan's body: %s: %s",
                         reader->line, op->kind->name, why);
    }
    return true;
}

/* op PHASE ENTRY KIND IN... : OUT... : INT... : FLOAT... */
static bool read_op(struct reader *reader, struct plan *plan) {
    struct op *op = &plan->op[plan->ops];
    int phase = 0;
    int64_t entry = 0;
    if (reader->words < 7) {
        return refuse(reader, "an operation has a phase, an entry, a kind and three ':'");
    }
    if (!read_name(reader, reader->word[1], PHASE_NAMES, "is no phase", &phase) ||
        !read_int(reader, reader->word[2], -1, ENTRY_MAX, &entry)) {
        return false;
    }
    op->number = plan->ops;
    op->phase = (enum phase)phase;
    op->entry = (int)entry;
    op->kind = backend_kind(&cpu_backend, reader->word[3]);
    if (op->kind == NULL) {
        return fault_say(reader->fault, RUNNER_UNSUPPORTED,
                         "line %d of the plan's body: this build has no operation '%.40s'",
                         reader->line, reader->word[3]);
    }
    int at = read_operands(reader, plan, 4, op->in, &op->ins);
    if (at == 0 || (at = read_operands(reader, plan, at, op->out, &op->outs)) == 0 ||
        !read_numbers(reader, at, op) || !check_op(reader, plan, op)) {
        return false;
    }
    if (plan->entries <= op->entry) {
        plan->entries = op->entry + 1;
    }
    plan->ops++;
    return true;
}

static bool read_loss(struct reader *reader, struct plan *plan) {
    int64_t number = 0;
    if (reader->words != 2 || strcmp(reader->word[0], "loss") != 0) {
        return refuse_word(reader, reader->word[0], "cannot stand here");
    }
    if (!read_int(reader, reader->word[1], -1, plan->tensors - 1, &number)) {
        return false;
    }
    plan->loss = number < 0 ? NULL : &plan->tensor[number];
    if (plan->loss != NULL && plan->loss->type != TYPE_FLOAT) {
        return refuse(reader, "a loss is a float");
    }
    return true;
}

/* The lines of a variable number, each kind behind the one before it. */
static bool read_lists(struct reader *reader, struct plan *plan) {
    static const char *const order[] = {"stream", "tensor", "op", NULL};
    bool (*const readers[])(struct reader *, struct plan *) = {read_stream, read_tensor, read_op};
    for (int list = 0; next_line(reader);) {
        while (order[list] != NULL && strcmp(reader->word[0], order[list]) != 0) {
            list++;
        }
        if (order[list] == NULL) {
            return read_loss(reader, plan);
        }
        if (!readers[list](reader, plan)) {
            return false;
        }
    }
    return false;
}

static int count_lines(const char *at, const char *end, const char *opening) {
    size_t length = strlen(opening);
    int count = 0;
    while (at < end) {
        if ((size_t)(end - at) >= length && memcmp(at, opening, length) == 0) {
            count++;
        }
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        at = stop == NULL ? end : stop + 1;
    }
    return count;
}

static bool make_room(struct reader *reader, struct plan *plan) {
    int tensors = count_lines(reader->at, reader->end, "tensor ");
    int ops = count_lines(reader->at, reader->end, "op ");
    if (tensors > TENSORS_MAX || ops > OPS_MAX) {
        return refuse(reader, "the plan has more tensors or operations than this runner takes");
    }
    plan->tensor = calloc((size_t)tensors + 1, sizeof *plan->tensor);
    plan->op = calloc((size_t)ops + 1, sizeof *plan->op);
    if (plan->tensor == NULL || plan->op == NULL) {
        return fault_say(reader->fault, RUNNER_OUT_OF_MEMORY, "no memory for the plan itself");
    }
    return true;
}

static bool has_work(const struct plan *plan) {
    for (int i = 0; i < plan->ops; i++) {
        if (plan->op[i].phase != PHASE_EVALUATE && plan->op[i].phase != PHASE_LOAD) {
            return true;
        }
    }
    return false;
}

static bool read_body(struct reader *reader, struct plan *plan) {
    if (!expect(reader, "farmhand-body", 2)) {
        return false;
    }
    if (strcmp(reader->word[1], "1") != 0) {
        return refuse_word(reader, reader->word[1], "is another version of plans");
    }
    if (!read_case(reader, plan) || !read_backend(reader, plan) || !read_settings(reader, plan) ||
        !read_arenas(reader, plan) || !make_room(reader, plan) || !read_lists(reader, plan) ||
        !expect(reader, "end", 1)) {
        return false;
    }
    if (reader->at != reader->end) {
        return refuse(reader, "something follows the 'end'");
    }
    return has_work(plan) || refuse(reader, "the plan has no operation");
}

/* Steps over "farmhand-plan 1 BYTES\n" and the header; answers where the body begins. */
static char *skip_header(char *bytes, size_t count, struct fault *fault) {
    static const char opening[] = "farmhand-plan 1 ";
    size_t at = sizeof opening - 1;
    size_t size = 0;
    int digits = 0;
    if (count < at || memcmp(bytes, opening, at) != 0) {
        digits = 99;
    }
    for (; digits < 9 && at < count && bytes[at] >= '0' && bytes[at] <= '9'; at++, digits++) {
        size = size * 10 + (size_t)(bytes[at] - '0');
    }
    if (digits < 1 || digits > 8 || at == count || bytes[at] != '\n') {
        fault_say(fault, RUNNER_BAD_PLAN, "the plan does not begin with 'farmhand-plan 1 BYTES'");
        return NULL;
    }
    at++;
    if (count - at < size || size < 2 || bytes[at] != '{' || bytes[at + size - 1] != '\n') {
        fault_say(fault, RUNNER_BAD_PLAN, "the plan ends inside its header; push it again");
        return NULL;
    }
    return bytes + at + size;
}

struct plan *plan_read(char *bytes, size_t count, struct fault *fault) {
    char *body = skip_header(bytes, count, fault);
    if (body == NULL) {
        return NULL;
    }
    if (body == bytes + count) {
        fault_say(fault, RUNNER_UNSUPPORTED,
                  "the plan has no body: this workload can only be simulated");
        return NULL;
    }
    struct plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) {
        fault_say(fault, RUNNER_OUT_OF_MEMORY, "no memory for the plan itself");
        return NULL;
    }
    struct reader reader = {.at = body, .end = bytes + count, .fault = fault};
    return read_body(&reader, plan) ? plan : NULL;
}
