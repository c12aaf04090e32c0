/* signature.c - whether the operands and parameters of an operation fit its signature (ops.h). */
#include "../engine.h"

enum { SIZES_MAX = 24 };

/* A name in a signature: where it begins, and how long it is. */
struct name {
    const char *at;
    int length;
};

/* What the names stand for in one operation: the sizes of axes, and integer parameters. */
struct sizes {
    struct name name[SIZES_MAX];
    int64_t value[SIZES_MAX];
    int count;
};

enum fit { FITS, DIFFERS, UNDECIDED };

/* ---- words ---- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* A name of no length where none begins, which is how a list ends. */
static struct name name_at(const char *at) {
    struct name name = {at, 0};
    for (char c = *at; (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || is_digit(c);) {
        c = at[++name.length];
    }
    return name;
}

static bool same_name(struct name name, const char *other, size_t length) {
    return (size_t)name.length == length && memcmp(name.at, other, length) == 0;
}

static const char *next_word(const char *at) {
    at += strcspn(at, " ");
    return at + strspn(at, " ");
}

/* The list after that number of colons. */
static const char *list_after(const char *signature, int colons) {
    for (; colons > 0 && *signature != '\0'; signature++) {
        colons -= *signature == ':';
    }
    return signature + strspn(signature, " ");
}

static int count_words(const char *list) {
    int count = 0;
    for (; name_at(list).length > 0; list = next_word(list)) {
        count++;
    }
    return count;
}

/* ---- sizes ---- */

static const int64_t *find_size(const struct sizes *sizes, struct name name) {
    for (int n = 0; n < sizes->count; n++) {
        if (same_name(sizes->name[n], name.at, (size_t)name.length)) {
            return &sizes->value[n];
        }
    }
    return NULL;
}

static void add_size(struct sizes *sizes, struct name name, int64_t value) {
    if (sizes->count < SIZES_MAX) {
        sizes->name[sizes->count] = name;
        sizes->value[sizes->count++] = value;
    }
}

/* Compares a size with the product that begins at *at, and moves *at behind it. One name that is
 * not known yet gets the value that makes the product fit. */
static enum fit match_product(const char **at, struct sizes *sizes, int64_t size) {
    struct name unknown = {NULL, 0};
    int unknowns = 0;
    int64_t product = 1;
    for (bool more = true; more; *at += more) {
        struct name name = name_at(*at);
        const int64_t number = **at - '0',
                      *known = is_digit(**at) ? &number : find_size(sizes, name);
        if (known == NULL) {
            unknown = name;
            unknowns++;
        } else if (*known < 1 || __builtin_mul_overflow(product, *known, &product)) {
            return DIFFERS;
        }
        *at += name.length;
        more = **at == '*';
    }
    if (unknowns > 1) {
        return UNDECIDED;
    }
    if (size % product != 0 || (unknowns == 0 && size != product)) {
        return DIFFERS;
    }
    if (unknowns == 1) {
        add_size(sizes, unknown, size / product);
    }
    return FITS;
}

/* Compares the axes of a tensor with "A,B,C)"; "A.." stands for any number of axes, also none. */
static enum fit match_axes(const char *at, struct sizes *sizes, const struct tensor *tensor) {
    int names = 1, axis = 0;
    bool any = false;
    for (const char *c = at; *c != ')'; c++) {
        names += *c == ',';
        any = any || *c == '.';
    }
    int folded = tensor->rank - (names - 1); /* the axes of "A.." */
    if (any ? folded < 0 : folded != 1) {
        return DIFFERS;
    }
    for (enum fit fit = FITS; fit == FITS; at++) {
        int axes = at[strcspn(at, ".,)")] == '.' ? folded : 1;
        int64_t size = 1;
        for (; axes > 0; axes--) {
            size *= tensor->dim[axis++];
        }
        fit = match_product(&at, sizes, size);
        at += strspn(at, ".");
        if (fit != FITS || *at == ')') {
            return fit;
        }
    }
    return DIFFERS;
}

/* ---- operands ---- */

static bool has_type_of(const struct tensor *tensor, struct name name) {
    static const char *const index_names[] = {"where", "tokens", "labels", "action", NULL};
    enum type expected = same_name(name, "mask", 4) ? TYPE_BYTE : TYPE_FLOAT;
    for (int n = 0; index_names[n] != NULL; n++) {
        if (same_name(name, index_names[n], strlen(index_names[n]))) {
            expected = TYPE_INDEX;
        }
    }
    return tensor->type == expected || (same_name(name, "batch", 5) && tensor->type == TYPE_INDEX);
}

static enum fit match_operand(const char *word, struct sizes *sizes, const struct tensor *tensor) {
    struct name name = name_at(word);
    if (tensor == NULL || !has_type_of(tensor, name)) {
        return DIFFERS;
    }
    const char *size = word + name.length + 1;
    switch (size[-1]) {
    case '(':
        return match_axes(size, sizes, tensor);
    case '[':
        return match_product(&size, sizes, tensor->count);
    default:
        return FITS;
    }
}

/* Compares all operands of a list. */
static enum fit match_operands(const char *list, struct sizes *sizes,
                               const struct tensor *const *operand, int count) {
    enum fit all = FITS;
    int n = 0;
    for (; name_at(list).length > 0; list = next_word(list)) {
        const char *end = list + strcspn(list, " ");
        if (end[-1] == '?' && (n >= count || operand[n] == NULL)) {
            n += n < count;
            continue;
        }
        bool repeats = end[-1] == '.';
        do {
            enum fit fit = n < count ? match_operand(list, sizes, operand[n++]) : DIFFERS;
            if (fit == DIFFERS) {
                return DIFFERS;
            }
            all = fit == UNDECIDED ? UNDECIDED : all;
        } while (repeats && n < count);
    }
    return n == count ? all : DIFFERS;
}

static bool fits_signature(const struct op *op) {
    const char *const signature = op->kind->signature, *ints = list_after(signature, 2);
    if (count_words(ints) != op->ints || count_words(list_after(signature, 3)) != op->reals) {
        return false;
    }
    struct sizes sizes = {.count = 0};
    for (int n = 0; n < op->ints; n++, ints = next_word(ints)) {
        add_size(&sizes, name_at(ints), op->i[n]);
    }
    /* A size may follow only from an operand that comes later. */
    int known;
    enum fit in, out;
    do {
        known = sizes.count;
        in = match_operands(signature, &sizes, op->in, op->ins);
        out = match_operands(list_after(signature, 1), &sizes, op->out, op->outs);
    } while ((in == UNDECIDED || out == UNDECIDED) && sizes.count > known);
    return in == FITS && out == FITS;
}

const char *check_op(const struct op *op) {
    const struct op_kind *kind = op->kind;
    if (!fits_signature(op)) {
        return "does not fit its signature";
    }
    if (kind->macs != NULL && kind->macs(op) > INT64_MAX / 16) {
        return "is too large";
    }
    return kind->check == NULL ? NULL : kind->check(op);
}
