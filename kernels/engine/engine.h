/* engine.h - the engine: a plan's tensors and operations, and the seam that backends fill.
 *
 * The engine knows no models. Python lowers a model to a flat list: tensors with a place in
 * memory, and operations over them in the order of execution. The engine checks the list once,
 * takes all memory once, and then runs it step after step without another allocation.
 *
 * THE BODY OF A PLAN (what stands behind the JSON header; text, one record a line, words apart by
 * one space; a reader can follow it with the model definition beside it):
 *
 *   farmhand-body 1
 *   case DIGEST                     as in the header
 *   backend cpu|opencl              who computes; see BACKENDS
 *   threads N
 *   training 0|1                    1: the loss has to fall and every learned tensor has to move
 *   samples N                       a step
 *   seed N                          of initial values, data sets and dropout
 *   evaluate N                      run the operations of phase "evaluate" after every N steps; 0: never
 *   arena NAME BYTES                one line each, in this order: parameter gradient state activation input
 *   stream N TYPE COUNT RANK DIM... GENERATOR INT... | FLOAT...
 *                                   a data set kept in memory: COUNT samples of shape DIM (data.h)
 *   tensor N TYPE ARENA OFFSET RANK DIM... INIT [FLOAT]
 *                                   numbered from 0; TYPE float|index|byte (4, 4, 1 bytes a value);
 *                                   OFFSET in bytes, a multiple of 64; INIT none | zero |
 *                                   constant C | uniform BOUND | normal DEVIATION.
 *                                   Tensors may overlap: whoever lowered the plan knows who
 *                                   outlives whom, and views are tensors over the same bytes.
 *   op PHASE ENTRY KIND IN... : OUT... : INT... : FLOAT...
 *                                   PHASE load|forward|backward|update|evaluate; ENTRY is the
 *                                   number of the header's operation that this is part of (-1:
 *                                   of none, as with load); IN and OUT are tensor numbers, or
 *                                   "-" for an operand that is left out
 *   loss N                          the tensor that holds the loss of a step, or -1
 *   end
 *
 * Whatever breaks this grammar, points outside its arena or does not fit its operation is the
 * fault bad_plan with one sentence; an operation that the backend lacks is unsupported.
 *
 * BACKENDS. Every operation is one of cpu/ first: its check makes a plan safe for whoever runs it,
 * and its count of multiply-adds is everybody's. The OpenCL backend (opencl/device.h) keeps the arenas
 * on a device, and has for each operation a few launches by a table (opencl/recipes.h). It wants
 * tensors at multiples of what the device aligns to, so such plans are lowered with 512 for 64.
 *
 * MEMORY. The arenas parameter, gradient, state, activation and input are the plan's; workspace is
 * the engine's own: the largest that any operation asks for, taken once and shared by all, since
 * operations run one after another.
 *
 * HOW TO ADD AN OPERATION. Follow one that is there; gelu is short, and its name leads to all places:
 *   cpu/ops.h                       a line that says what it takes and what it makes
 *   cpu/activations.c               a struct op_kind in its family's file, listed at the end of it, with
 *                                   a check that makes run() safe whatever a plan says
 *   workloads/layers/               the layer: its shape, its price, what its way back needs
 *   workloads/lowering/layers.py    which operations it becomes, there and back (memory.py: which
 *                                   output may lie where an input lay)
 *   tests/kernels/reference/        the same in numpy, and in torch_peer.py in PyTorch
 *   tests/kernels/test_gradients.py a model that has it; a layer that is in none fails there
 * and build: python -m kernels.build. Its values and gradients, on one thread and on two, are then
 * tested with all others'. For OpenCL, see opencl/recipes.h; until it has a line there, that backend
 * refuses a plan with it.
 */
#ifndef FARMHAND_ENGINE_H
#define FARMHAND_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RANK_MAX = 6,
    OPERANDS_MAX = 24,
    INTS_MAX = 16,
    FLOATS_MAX = 8,
    NAME_MAX = 48,
    ALIGNMENT = 64
};

enum type { TYPE_FLOAT, TYPE_INDEX, TYPE_BYTE };

enum arena { ARENA_PARAMETER, ARENA_GRADIENT, ARENA_STATE, ARENA_ACTIVATION, ARENA_INPUT, ARENAS };

enum phase { PHASE_LOAD, PHASE_FORWARD, PHASE_BACKWARD, PHASE_UPDATE, PHASE_EVALUATE, PHASES };

enum init { INIT_NONE, INIT_ZERO, INIT_CONSTANT, INIT_UNIFORM, INIT_NORMAL };

struct tensor {
    enum type type;
    enum arena arena;
    size_t offset;
    int rank;
    int64_t dim[RANK_MAX];
    int64_t count; /* values, the product of dim */
    enum init init;
    float init_value;
    void *data; /* set when the arenas are taken */
};

static inline float *floats(const struct tensor *tensor) { return tensor->data; }
static inline int32_t *indices(const struct tensor *tensor) { return tensor->data; }
static inline uint8_t *bytes(const struct tensor *tensor) { return tensor->data; }

struct op_kind;

struct op {
    const struct op_kind *kind;
    int number; /* in the plan, from 0 */
    enum phase phase;
    int entry;
    int ins, outs, ints, reals;
    const struct tensor *in[OPERANDS_MAX]; /* NULL: left out */
    const struct tensor *out[OPERANDS_MAX];
    int64_t i[INTS_MAX];
    float f[FLOATS_MAX];
};

struct pool;
struct dataset;

/* What an operation is given to run with. */
struct scene {
    struct pool *pool;
    void *workspace; /* as many bytes as its kind asked for, aligned to ALIGNMENT, not zeroed */
    uint64_t step;   /* from 0, warm-up counted */
    uint64_t seed;
    const struct dataset *dataset;
};

/* One operation of one backend. */
struct op_kind {
    const char *name;
    /* Why this operation cannot be run (part of a sentence: "a weight of 3x3 does not fit ..."),
     * or NULL. After NULL, run() touches nothing outside its operands and its workspace. */
    const char *(*check)(const struct op *op);
    /* Bytes of workspace for so many threads; NULL: none. */
    size_t (*workspace)(const struct op *op, int threads);
    /* Multiply-adds of one execution, counted from the operands as they are; NULL: none. */
    int64_t (*macs)(const struct op *op);
    void (*run)(const struct op *op, struct scene *scene);
};

/* A backend is a list of operations, by family. What it lacks is the fault "unsupported", or, where
 * a plan allows another backend to step in, a counted fallback that the last line reports. */
struct backend {
    const char *name;
    const struct op_kind *const *const *families; /* each ends with NULL, and so do they */
};

/* The operation of that name, or NULL. */
const struct op_kind *backend_kind(const struct backend *backend, const char *name);

extern const struct backend cpu_backend;

#endif
