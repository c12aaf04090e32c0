/* plan.c - parses an untrusted plan.
 *
 * The one rule: a plan that passes is safe to run. Every number is within its limits, every tensor
 * lies in its arena, and check_op() accepted every operation. The fault names the first line that
 * breaks the grammar, and nothing is read after it. */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

enum {
    WORDS_MAX = 2 * OPERANDS_MAX + INTS_MAX + FLOATS_MAX + 8,
    TENSORS_MAX = 1 << 20,
    OPS_MAX = 1 << 18,
    ENTRY_MAX = 1 << 18
};

static const int64_t BYTES_MAX = INT64_C(1)
                                 << 42; /* of an arena: more than the memory of any phone */

static const char *const TYPE_NAMES[] = {"float", "index", "byte", NULL};
static const char *const ARENA_NAMES[] = {"parameter",  "gradient", "state",
                                          "activation", "input",    NULL};
static const char *const PHASE_NAMES[] = {"load",   "forward",  "backward",
                                          "update", "evaluate", NULL};
static const char *const INIT_NAMES[] = {"none", "zero", "constant", "uniform", "normal", NULL};

/* The rest of the body, and the current line, split into words. */
struct reader {
    char *at, *end;
    int line;
    char *word[WORDS_MAX];
    int words;
    struct fault *fault;
};

static bool refuse(struct reader *reader, const char *what) {
    return fault_set(reader->fault, STATUS_BAD_PLAN, "line %d of the plan's body: %s", reader->line,
                     what);
}

static bool refuse_word(struct reader *reader, const char *word, const char *what) {
    return fault_set(reader->fault, STATUS_BAD_PLAN, "line %d of the plan's body: '%.40s' %s",
                     reader->line, word, what);
}

/* Splits the next line into printable words, separated by one space. */
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
                return refuse(reader, "has a character that is not printable");
            }
            continue;
        }
        if (at == word) {
            return refuse(reader, "words must be separated by exactly one space");
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
        return fault_set(reader->fault, STATUS_BAD_PLAN,
                         "line %d of the plan's body: expected '%s' with %d words after it",
                         reader->line, name, words - 1);
    }
    return true;
}

static bool read_int(struct reader *reader, const char *word, int64_t min, int64_t max,
                     int64_t *value) {
    const char *digit = word + (*word == '-');
    size_t digits = strlen(digit);
    if (digits == 0 || digits > 18 || strspn(digit, "0123456789") != digits) {
        return refuse_word(reader, word, "is not an integer");
    }
    int64_t number = 0;
    for (; *digit != '\0'; digit++) {
        number = number * 10 + (*digit - '0');
    }
    *value = *word == '-' ? -number : number;
    if (*value < min || *value > max) {
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
        return refuse(reader, "the digest of the case is too long");
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
        return fault_set(reader->fault, STATUS_UNSUPPORTED,
                         "this build has no backend '%.40s'; use cpu or opencl", reader->word[1]);
    }
    return true;
}

static bool read_setting(struct reader *reader, const char *name, int64_t min, int64_t max,
                         int64_t *value) {
    return expect(reader, name, 2) && read_int(reader, reader->word[1], min, max, value);
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
            return refuse_word(
                reader, reader->word[1],
                "is not the next arena; the order is parameter gradient state activation input");
        }
        if (!read_int(reader, reader->word[2], 0, BYTES_MAX, &size)) {
            return false;
        }
        plan->arena[arena] = (size_t)size;
    }
    return true;
}

/* Reads RANK DIM... from word `at` on; returns the number of the word after them, or 0. */
static int read_shape(struct reader *reader, int at, int *rank, int64_t *dim, int64_t *count) {
    int64_t number = 0;
    if (at >= reader->words || !read_int(reader, reader->word[at], 0, RANK_MAX, &number)) {
        refuse(reader, "has no shape");
        return 0;
    }
    *rank = (int)number;
    if (at + 1 + *rank > reader->words) {
        refuse(reader, "has fewer dimensions than its rank");
        return 0;
    }
    *count = 1;
    for (int axis = 0; axis < *rank; axis++) {
        if (!read_int(reader, reader->word[at + 1 + axis], 1, BYTES_MAX, &dim[axis])) {
            return 0;
        }
        if (*count > BYTES_MAX / dim[axis]) {
            refuse(reader, "has more values than memory can hold");
            return 0;
        }
        *count *= dim[axis];
    }
    return at + 1 + *rank;
}

/* stream N TYPE COUNT RANK DIM... GENERATOR INT... | FLOAT... */
static bool read_stream(struct reader *reader, struct plan *plan) {
    if (plan->streams == STREAMS_MAX) {
        return refuse(reader, "there are more than 16 streams");
    }
    struct stream *stream = &plan->stream[plan->streams];
    int type = 0;
    int64_t number = 0, values = 0;
    if (reader->words < 6) {
        return refuse(reader, "a stream needs a number, a type, a count, a shape and a generator");
    }
    if (!read_int(reader, reader->word[1], plan->streams, plan->streams, &number) ||
        !read_name(reader, reader->word[2], TYPE_NAMES, "is not a type; use float, index or byte",
                   &type) ||
        !read_int(reader, reader->word[3], 1, INT64_C(1) << 40, &stream->count)) {
        return false;
    }
    stream->type = (enum type)type;
    int at = read_shape(reader, 4, &stream->rank, stream->dim, &values);
    if (at == 0 || at >= reader->words) {
        return refuse(reader, "the stream has no generator");
    }
    if (values > BYTES_MAX / stream->count) {
        return refuse(reader, "has more values than memory can hold");
    }
    stream->generator = generator_named(reader->word[at]);
    if (stream->generator == GENERATORS) {
        return refuse_word(reader, reader->word[at], "is not a generator of this build");
    }
    for (at++; at < reader->words && strcmp(reader->word[at], "|") != 0; at++) {
        if (stream->ints == STREAM_INTS_MAX) {
            return refuse(reader, "has too many integers");
        }
        if (!read_int(reader, reader->word[at], INT64_MIN, INT64_MAX, &stream->i[stream->ints++])) {
            return false;
        }
    }
    if (at == reader->words) {
        return refuse(reader, "a stream needs a '|' between its integers and its floats");
    }
    for (at++; at < reader->words; at++) {
        if (stream->reals == STREAM_FLOATS_MAX) {
            return refuse(reader, "has too many floats");
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

static bool read_init(struct reader *reader, int at, struct tensor *tensor) {
    int init = 0;
    if (at >= reader->words ||
        !read_name(reader, reader->word[at], INIT_NAMES,
                   "is not an initial value; use none, zero, constant, uniform or normal", &init)) {
        return refuse(reader, "the tensor has no initial value");
    }
    tensor->init = (enum init)init;
    bool has_value = init >= INIT_CONSTANT;
    if (reader->words != at + 1 + has_value) {
        return refuse(reader, "the initial value has the wrong number of words");
    }
    if (has_value && tensor->type != TYPE_FLOAT) {
        return refuse(reader, "only floats may have an initial value other than zero");
    }
    return !has_value || read_float(reader, reader->word[at + 1], &tensor->init_value);
}

/* tensor N TYPE ARENA OFFSET RANK DIM... INIT [FLOAT] */
static bool read_tensor(struct reader *reader, struct plan *plan) {
    struct tensor *tensor = &plan->tensor[plan->tensors];
    int type = 0, arena = 0;
    int64_t number = 0, offset = 0;
    if (reader->words < 7) {
        return refuse(
            reader,
            "a tensor needs a number, a type, an arena, an offset, a shape and an initial value");
    }
    if (!read_int(reader, reader->word[1], plan->tensors, plan->tensors, &number) ||
        !read_name(reader, reader->word[2], TYPE_NAMES, "is not a type; use float, index or byte",
                   &type) ||
        !read_name(reader, reader->word[3], ARENA_NAMES, "is not an arena", &arena) ||
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
        return refuse(reader, "the tensor's offset is not a multiple of 64");
    }
    size_t bytes = tensor_bytes(tensor);
    if (tensor->offset + bytes > plan->arena[arena]) {
        return refuse_word(reader, reader->word[1], "lies outside its arena");
    }
    plan->tensors++;
    return true;
}

/* Reads tensor numbers up to the next ":"; returns the number of the word after it, or 0. */
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
        refuse(reader, "an operation needs three ':', after its inputs, outputs and integers");
        return 0;
    }
    return at + 1;
}

static bool read_params(struct reader *reader, int at, struct op *op) {
    for (; at < reader->words && strcmp(reader->word[at], ":") != 0; at++) {
        if (op->ints == INTS_MAX) {
            return refuse(reader, "the operation has too many integers");
        }
        if (!read_int(reader, reader->word[at], INT64_MIN, INT64_MAX, &op->i[op->ints++])) {
            return false;
        }
    }
    if (at == reader->words) {
        return refuse(reader,
                      "an operation needs three ':', after its inputs, outputs and integers");
    }
    for (at++; at < reader->words; at++) {
        if (op->reals == FLOATS_MAX) {
            return refuse(reader, "the operation has too many floats");
        }
        if (!read_float(reader, reader->word[at], &op->f[op->reals++])) {
            return false;
        }
    }
    return true;
}

static bool check_operation(struct reader *reader, const struct plan *plan, const struct op *op) {
    const char *why = check_op(op);
    if (why == NULL && op_is(op, "load")) {
        why = load_check(op, plan->stream, plan->streams);
    }
    if (why != NULL) {
        return fault_set(reader->fault, STATUS_BAD_PLAN,
                         "line %d of the plan's body: %s: %s; its signature is %s", reader->line,
                         op->kind->name, why, op->kind->signature);
    }
    return true;
}

/* op PHASE ENTRY KIND IN... : OUT... : INT... : FLOAT... */
static bool read_op(struct reader *reader, struct plan *plan) {
    struct op *op = &plan->op[plan->ops];
    int phase = 0;
    int64_t entry = 0;
    if (reader->words < 7) {
        return refuse(reader, "an operation needs a phase, an entry, a kind and three ':'");
    }
    if (!read_name(reader, reader->word[1], PHASE_NAMES,
                   "is not a phase; use load, forward, backward, update or evaluate", &phase) ||
        !read_int(reader, reader->word[2], -1, ENTRY_MAX, &entry)) {
        return false;
    }
    op->number = plan->ops;
    op->phase = (enum phase)phase;
    op->entry = (int)entry;
    op->kind = backend_kind(&cpu_backend, reader->word[3]);
    if (op->kind == NULL) {
        return fault_set(reader->fault, STATUS_UNSUPPORTED,
                         "line %d of the plan's body: this build has no operation '%.40s'",
                         reader->line, reader->word[3]);
    }
    int at = read_operands(reader, plan, 4, op->in, &op->ins);
    if (at == 0 || (at = read_operands(reader, plan, at, op->out, &op->outs)) == 0 ||
        !read_params(reader, at, op) || !check_operation(reader, plan, op)) {
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
        return refuse_word(reader, reader->word[0], "is not expected here");
    }
    if (!read_int(reader, reader->word[1], -1, plan->tensors - 1, &number)) {
        return false;
    }
    plan->loss = number < 0 ? NULL : &plan->tensor[number];
    if (plan->loss != NULL && plan->loss->type != TYPE_FLOAT) {
        return refuse(reader, "the loss is not a float tensor");
    }
    return true;
}

/* Reads all streams, then all tensors, then all operations. */
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

static bool allocate_lists(struct reader *reader, struct plan *plan) {
    int tensors = count_lines(reader->at, reader->end, "tensor ");
    int ops = count_lines(reader->at, reader->end, "op ");
    if (tensors > TENSORS_MAX || ops > OPS_MAX) {
        return refuse(reader, "the plan has more tensors or operations than this runner accepts");
    }
    plan->tensor = calloc((size_t)tensors + 1, sizeof *plan->tensor);
    plan->op = calloc((size_t)ops + 1, sizeof *plan->op);
    if (plan->tensor == NULL || plan->op == NULL) {
        return fault_set(reader->fault, STATUS_OUT_OF_MEMORY,
                         "not enough memory to parse the plan; close other programs");
    }
    return true;
}

static bool has_operations(const struct plan *plan) {
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
        return refuse_word(
            reader, reader->word[1],
            "is not a version of plans that this runner reads; lower the plan again");
    }
    if (!read_case(reader, plan) || !read_backend(reader, plan) || !read_settings(reader, plan) ||
        !read_arenas(reader, plan) || !allocate_lists(reader, plan) || !read_lists(reader, plan) ||
        !expect(reader, "end", 1)) {
        return false;
    }
    if (reader->at != reader->end) {
        return refuse(reader, "the plan continues after its 'end'");
    }
    return has_operations(plan) || refuse(reader, "the plan has no operation");
}

/* Skips "farmhand-plan 1 BYTES\n" and the header; returns the start of the body, or NULL. */
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
        fault_set(fault, STATUS_BAD_PLAN,
                  "the plan does not begin with 'farmhand-plan 1 BYTES'; lower it again");
        return NULL;
    }
    at++;
    if (count - at < size || size < 2 || bytes[at] != '{' || bytes[at + size - 1] != '\n') {
        fault_set(fault, STATUS_BAD_PLAN, "the plan ends inside its header; push it again");
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
        fault_set(fault, STATUS_UNSUPPORTED,
                  "the plan has no body: this workload can only run on a simulated phone");
        return NULL;
    }
    struct plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) {
        fault_set(fault, STATUS_OUT_OF_MEMORY,
                  "not enough memory to parse the plan; close other programs");
        return NULL;
    }
    struct reader reader = {.at = body, .end = bytes + count, .fault = fault};
    plan->hash = hash_bytes(0, body, (size_t)(reader.end - body));
    return read_body(&reader, plan) ? plan : NULL;
}
