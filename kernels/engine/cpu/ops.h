/* ops.h - every operation of the CPU backend: the tables of its families, and their signatures.
 *
 * The file of a family begins with the formulas of its operations and the table of their
 * signatures, against which every operation of a plan is checked (signature.c). A signature reads
 * INPUTS : OUTPUTS : INTEGERS : FLOATS, and empty lists at the end are left out:
 *
 *   linear_forward   x(R..,I) w(O,I) b[O]? : y(R..,O)
 *   dropout_forward  x[N] : y[N]=x mask[N] : : RATE
 *
 *   x(N,C,H,W)   a tensor with these axes, contiguous. A capital name stands for one size in the
 *                whole signature, or for an integer parameter that is listed.
 *   x(R..,L)     R is the product of any number of axes, also of none
 *   x[N*C]       a tensor of any shape with that number of values
 *   x            a tensor of any size, which the operation's check() looks at
 *   4*U          a product of sizes, parameters and digits
 *   b[O]?        may be left out
 *   x[N]...      one or more tensors
 *   y[N]=x       may be the memory of the input x (in place); m[N]=m is the input m, updated
 *
 * Masks are bytes; where, tokens, labels and action are indices, and a batch is either floats or
 * indices. All others are floats. dX is the gradient of the loss with respect to X. Images are
 * (N,C,H,W), sequences (N,T,F). Operations overwrite their outputs, they never add to them. */
#ifndef FARMHAND_OPS_H
#define FARMHAND_OPS_H

#include "../engine.h"

/* Each table ends with a name of NULL; ops.c joins them into the list of the backend. */
extern const struct op_kind conv_kinds[];
extern const struct op_kind matmul_kinds[];
extern const struct op_kind activation_kinds[];
extern const struct op_kind batch_norm_kinds[];
extern const struct op_kind batch_norm_gradient_kinds[];
extern const struct op_kind layer_norm_kinds[];
extern const struct op_kind pooling_kinds[];
extern const struct op_kind shape_kinds[];
extern const struct op_kind embedding_kinds[];
extern const struct op_kind lstm_kinds[];
extern const struct op_kind attention_kinds[];
extern const struct op_kind loss_kinds[];
extern const struct op_kind optimizer_kinds[];
extern const struct op_kind load_kinds[];

/* Whether the optional third input of a product is there, its bias. */
static inline bool has_bias(const struct op *op) { return op->ins == 3 && op->in[2] != NULL; }

#endif
