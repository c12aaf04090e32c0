/* launch_matmul.c - matrix products: linear layers, their biases, and the variants of a product.
 *
 * A variant is a file of kernels/opencl, built after sgemm_common.cl with its parameters (MR, NR,
 * TILE ...), which are either the defaults below or those of a tuning file. */
#include "launch.h"

#ifndef RUNNER_STATIC

#include <string.h>

#define SGEMM(variant) "sgemm_common.cl sgemm_" variant ".cl"

/* ---- parameters of a variant: "NAME=VALUE NAME=VALUE ..." ---- */

/* Reads the decimal digits of a value; at most 2^24. */
static int64_t parse_value(const char *digit) {
    int64_t value = 0;
    for (; *digit >= '0' && *digit <= '9' && value < 1 << 24; digit++) {
        value = value * 10 + (*digit - '0');
    }
    return value;
}

/* The value of a parameter, or `otherwise` where it is not given. */
static int64_t find_param(const char *params, const char *name, int64_t otherwise) {
    size_t length = strlen(name);
    for (const char *at = params; *at != '\0'; at++) {
        if ((at == params || at[-1] == ' ') && strncmp(at, name, length) == 0 &&
            at[length] == '=') {
            return parse_value(at + length + 1);
        }
    }
    return otherwise;
}

/* A parameter that the kernel is built with. */
static int64_t param(struct launcher *to, const char *params, const char *name, int64_t otherwise) {
    int64_t value = find_param(params, name, otherwise);
    define(to, name, value);
    return value;
}

/* The same for a size, which must be positive. */
static int64_t size_param(struct launcher *to, const char *params, const char *name,
                          int64_t otherwise) {
    int64_t value = param(to, params, name, otherwise);
    if (value < 1) {
        fault_set(to->fault, STATUS_UNSUPPORTED,
                  "the matmul parameter %s must be at least 1; tune again", name);
    }
    return max_i64(value, 1);
}

/* The shape of a work group is a property of the launch: programs that differ in nothing else are
 * the same program. */
static bool is_group_param(const char *word) {
    return strncmp(word, "GX=", 3) == 0 || strncmp(word, "GY=", 3) == 0;
}

static struct grid in_param_groups(struct grid grid, const char *params, int64_t x, int64_t y) {
    return in_groups(grid, find_param(params, "GX", x), find_param(params, "GY", y), 1);
}

/* Defines the parameters of a tuning file that the variant does not name, such as WIDE or DEEP. */
static void define_others(struct launcher *to, const char *params) {
    for (const char *word = params; *word != '\0';) {
        char name[PARAM_NAME_BYTES] = "", option[PARAM_NAME_BYTES + 4];
        size_t length = strcspn(word, "=");
        memcpy(name, word, length); /* read_tuned() limits the length */
        format_text(option, sizeof option, "-D%s=", name);
        if (!is_group_param(word) && strstr(to->defines, option) == NULL) {
            define(to, name, parse_value(word + length + 1));
        }
        word += strcspn(word, " ");
        word += strspn(word, " ");
    }
}

/* ---- variants ---- */

/* Launches a kernel of a product: these arguments and, of a batch, the places of its matrices. */
static bool launch_kernel(struct launcher *to, const struct matmul *p, const char *file,
                          const char *entry, struct grid grid, const struct arg *args, int count,
                          const char *matrices) {
    struct arg all[16];
    memcpy(all, args, (size_t)count * sizeof *args);
    for (; p->batch > 0 && *matrices != '\0'; matrices++) {
        all[count++] = INT4(*matrices == 'a' ? &p->at_a : *matrices == 'b' ? &p->at_b : &p->at_c);
    }
    if (p->batch > 0) {
        grid.dims = 3;
        grid.size[2] = p->batch;
    }
    return add_launch(to, file, entry, grid, all, count);
}

#define LAUNCH_KERNEL(to, p, file, entry, grid, matrices, ...)                                     \
    launch_kernel(to, p, file, entry, grid, (const struct arg[]){__VA_ARGS__},                     \
                  (int)(sizeof((const struct arg[]){__VA_ARGS__}) / sizeof(struct arg)), matrices)

/* A kernel that reads A and B where they are. */
static bool launch_in_place(struct launcher *to, const struct matmul *p, const char *file,
                            const char *entry, struct grid grid) {
    return LAUNCH_KERNEL(to, p, file, entry, grid, "abc", INT(p->m), INT(p->n), INT(p->k), p->a,
                         INT(p->lda), p->b, INT(p->ldb), p->c, INT(p->ldc));
}

static bool naive_variant(struct launcher *to, const struct matmul *p, const char *params) {
    define_others(to, params);
    return launch_in_place(to, p, SGEMM("1_naive"), "sgemm_naive", grid2(p->n, p->m));
}

static bool vector_variant(struct launcher *to, const struct matmul *p, const char *params) {
    define_others(to, params);
    return launch_in_place(to, p, SGEMM("2_vector"), "sgemm_vector", grid2(div_up(p->n, 4), p->m));
}

static bool tiled_variant(struct launcher *to, const struct matmul *p, const char *params) {
    int64_t tile = size_param(to, params, "TILE", 16);
    define_others(to, params);
    return launch_in_place(to, p, SGEMM("3_tiled"), "sgemm_tiled",
                           in_groups(grid2(p->n, p->m), tile, tile, 1));
}

static bool tiled_vector_variant(struct launcher *to, const struct matmul *p, const char *params) {
    int64_t tile = size_param(to, params, "TILE", 16);
    define_others(to, params);
    return launch_in_place(to, p, SGEMM("4_tiled_vector"), "sgemm_tiled_vector",
                           in_groups(grid2(div_up(p->n, 4), p->m), div_up(tile, 4), tile, 1));
}

static bool direct_variant(struct launcher *to, const struct matmul *p, const char *params) {
    int64_t mr = size_param(to, params, "MR", 4), nr = size_param(to, params, "NR", 16);
    struct grid grid = grid2(div_up(p->n, nr), div_up(p->m, mr));
    define_others(to, params);
    return launch_in_place(to, p, SGEMM("5_direct"), "sgemm_direct",
                           in_param_groups(grid, params, 1, 1));
}

static bool dots_variant(struct launcher *to, const struct matmul *p, const char *params) {
    int64_t mr = size_param(to, params, "MR", 3), nc = size_param(to, params, "NC", 4);
    struct grid grid = grid2(div_up(p->n, nc), div_up(p->m, mr));
    define_others(to, params);
    return launch_in_place(to, p, SGEMM("6_dots"), "sgemm_dots",
                           in_param_groups(grid, params, 1, 1));
}

static bool packed_variant(struct launcher *to, const struct matmul *p, const char *params) {
    int64_t mr = size_param(to, params, "MR", 6), nr = size_param(to, params, "NR", 16);
    int64_t panels_per_item = size_param(to, params, "PANELS", 4);
    bool packs_a = param(to, params, "PACK_A", 1) != 0;
    int64_t row_panels = div_up(p->m, mr), column_panels = div_up(p->n, nr);
    int64_t products = max_i64(p->batch, 1);
    define_others(to, params);
    if (!scratch(to, SLOT_B, mul_saturated(mul_saturated(column_panels * nr, p->k), products)) ||
        (packs_a &&
         !scratch(to, SLOT_A, mul_saturated(mul_saturated(row_panels * mr, p->k), products)))) {
        return false;
    }
    if (packs_a && !LAUNCH_KERNEL(to, p, SGEMM("7_packed"), "pack_a", grid2(p->k, row_panels), "a",
                                  INT(p->m), INT(p->k), p->a, INT(p->lda), SCRATCH(SLOT_A))) {
        return false;
    }
    struct grid grid = grid2(div_up(row_panels, panels_per_item), column_panels);
    return LAUNCH_KERNEL(to, p, SGEMM("7_packed"), "pack_b", grid2(p->k, column_panels), "b",
                         INT(p->n), INT(p->k), p->b, INT(p->ldb), SCRATCH(SLOT_B)) &&
           LAUNCH_KERNEL(to, p, SGEMM("7_packed"), "sgemm_packed",
                         in_param_groups(grid, params, 1, 1), "ac", INT(p->m), INT(p->n), INT(p->k),
                         packs_a ? SCRATCH(SLOT_A) : p->a, INT(p->lda), SCRATCH(SLOT_B), p->c,
                         INT(p->ldc));
}

typedef bool variant_function(struct launcher *to, const struct matmul *p, const char *params);

struct variant {
    char name[16];
    variant_function *launch;
};

/* Of these, --kernel takes those that KERNEL_NAMES lists (device.h); tuning files take all. */
static const struct variant VARIANTS[] = {
    {"naive", naive_variant},   {"vector", vector_variant},
    {"tiled", tiled_variant},   {"tiled_vector", tiled_vector_variant},
    {"direct", direct_variant}, {"dots", dots_variant},
    {"packed", packed_variant},
};

static const struct variant *find_variant(const char *name) {
    for (size_t i = 0; i < sizeof VARIANTS / sizeof *VARIANTS; i++) {
        if (strcmp(VARIANTS[i].name, name) == 0) {
            return &VARIANTS[i];
        }
    }
    return NULL;
}

bool matmul_variant_exists(const char *name) { return find_variant(name) != NULL; }

/* A rule of thumb where nothing was tuned: register tiles for CPUs, local memory tiles for other
 * devices that have room for them. The products of a batch are small. */
static const char *usual_variant(const struct session *session, const struct matmul *p) {
    const struct opencl_device *device = &session->facts.device;
    if (device->type & CL_DEVICE_TYPE_CPU) {
        int64_t macs = (int64_t)p->m * p->n * p->k;
        if (!p->transpose_b) {
            return macs <= 192 * 192 * 192 || p->batch > 0 ? "direct" : "packed";
        }
        bool small = p->m <= 128 || p->n <= 128 || p->batch > 0;
        return small && !p->transpose_a ? "dots" : "packed";
    }
    return device->max_group >= 64 && device->local_bytes >= 2048 ? "tiled_vector" : "vector";
}

bool launch_matmul(struct launcher *to, const struct matmul *matmul, const char *variant,
                   const char *params) {
    variant = variant == NULL ? to->session->kernel : variant;
    const struct tuned *tuned = variant == NULL ? tuned_for(to->session, matmul) : NULL;
    if (tuned != NULL) {
        variant = tuned->variant;
        params = tuned->params;
        to->session->facts.tuned++;
    }
    if (variant == NULL) {
        variant = usual_variant(to->session, matmul);
    }
    define(to, "TA", matmul->transpose_a);
    define(to, "TB", matmul->transpose_b);
    if (matmul->batch > 0) {
        define(to, "BATCHED", 1);
    }
    bool launched = find_variant(variant)->launch(to, matmul, params);
    clear_defines(to);
    return launched;
}

/* ---- operations ---- */

static int64_t columns_of(const struct tensor *x) { return x->rank > 0 ? x->dim[x->rank - 1] : 1; }

bool matmul_of(struct matmul *matmul, const struct tensor *a, bool transpose_a,
               const struct tensor *b, bool transpose_b, const struct tensor *c,
               struct fault *fault) {
    if (a->count > INT32_MAX || b->count > INT32_MAX || c->count > INT32_MAX) {
        return fault_set(fault, STATUS_UNSUPPORTED,
                         "a matrix product is too large for the device; use a smaller batch");
    }
    int64_t lda = columns_of(a), ldc = columns_of(c);
    *matmul = (struct matmul){
        .a = BUFFER(a),
        .b = BUFFER(b),
        .c = BUFFER(c),
        .m = (int32_t)(c->count / ldc),
        .n = (int32_t)ldc,
        .k = (int32_t)(transpose_a ? a->count / lda : lda),
        .lda = (int32_t)lda,
        .ldb = (int32_t)columns_of(b),
        .ldc = (int32_t)ldc,
        .transpose_a = transpose_a,
        .transpose_b = transpose_b,
    };
    return true;
}

bool launch_product(struct launcher *to, const struct tensor *a, bool transpose_a,
                    const struct tensor *b, bool transpose_b, const struct tensor *c) {
    struct matmul matmul;
    return matmul_of(&matmul, a, transpose_a, b, transpose_b, c, to->fault) &&
           launch_matmul(to, &matmul, NULL, "");
}

static bool sgemm(struct launcher *to, const struct op *op) {
    return launch_product(to, op->in[0], op->i[0] != 0, op->in[1], op->i[1] != 0, op->out[0]);
}

bool launch_bias(struct launcher *to, const struct tensor *bias, const struct tensor *y,
                 int64_t channels, int64_t pixels) {
    return LAUNCH(to, "shape_ops.cl", "add_bias", grid1(y->count), INT(y->count), INT(channels),
                  INT(pixels), BUFFER(bias), BUFFER(y));
}

static bool linear_forward(struct launcher *to, const struct op *op) {
    const struct tensor *y = op->out[0], *bias = op->ins > 2 ? op->in[2] : NULL;
    return launch_product(to, op->in[0], false, op->in[1], true, y) &&
           (bias == NULL || launch_bias(to, bias, y, columns_of(y), 1));
}

static bool linear_weight_gradient(struct launcher *to, const struct op *op) {
    return launch_product(to, op->in[1], true, op->in[0], false, op->out[0]);
}

static bool linear_input_gradient(struct launcher *to, const struct op *op) {
    return launch_product(to, op->in[1], false, op->in[0], false, op->out[0]);
}

bool launch_row_sum(struct launcher *to, const struct tensor *dy, int64_t columns,
                    const struct tensor *db) {
    return LAUNCH(to, "reductions.cl", "row_bias_gradient", grid1(columns),
                  INT(dy->count / columns), INT(columns), BUFFER(dy), BUFFER(db));
}

static bool row_bias_gradient(struct launcher *to, const struct op *op) {
    return launch_row_sum(to, op->in[0], columns_of(op->in[0]), op->out[0]);
}

static bool channel_bias(struct launcher *to, const struct op *op) {
    const struct tensor *y = op->out[0];
    return in_place(op->in[0], y) ? launch_bias(to, op->in[1], y, y->dim[1], values_from_axis(y, 2))
                                  : lacks(to);
}

static bool channel_bias_gradient(struct launcher *to, const struct op *op) {
    const struct tensor *dy = op->in[0];
    define(to, "GROUP", to->group);
    return LAUNCH(to, "reductions.cl", "channel_bias_gradient",
                  in_groups(grid1(mul_saturated(dy->dim[1], to->group)), to->group, 1, 1),
                  INT(dy->dim[0]), INT(dy->dim[1]), INT(values_from_axis(dy, 2)), BUFFER(dy),
                  BUFFER(op->out[0]));
}

const struct launch_entry matmul_launches[] = {
    {"sgemm", sgemm, 0},
    {"linear_forward", linear_forward, 0},
    {"linear_weight_gradient", linear_weight_gradient, 0},
    {"linear_input_gradient", linear_input_gradient, 0},
    {"row_bias_gradient", row_bias_gradient, 0},
    {"channel_bias", channel_bias, 0},
    {"channel_bias_gradient", channel_bias_gradient, 0},
    {"", NULL, 0},
};

#endif
