/* ops.h - every operation of the CPU backend, by family.
 *
 * Images are (N, C, H, W), sequences (N, T, F), rows (N, F); values lie in that order without gaps.
 * Operations write their outputs, they never add to them. "=" marks an output that may be the very
 * memory of the input it stands beside (in place). d before a name is the loss's gradient by it.
 *
 * WINDOWS, for convolution and pooling: KH KW SH SW TOP LEFT are kernel, stride and padding before;
 * the padding behind follows from the shapes.
 *
 * products (conv.c, linear.c; a transposed convolution is the input gradient of a plain one)
 *   conv_forward           x w b? : y : GROUPS KH KW SH SW TOP LEFT
 *   conv_weight_gradient   x dy : dw : GROUPS KH KW SH SW TOP LEFT
 *   conv_input_gradient    w dy : dx : GROUPS KH KW SH SW TOP LEFT
 *   channel_bias           y b : y=                         adds b[c] to every pixel of channel c
 *   channel_bias_gradient  dy : db
 *   linear_forward         x w b? : y                       y = x wT + b, w is (OUT, IN); leading axes are rows
 *   linear_weight_gradient x dy : dw
 *   linear_input_gradient  w dy : dx
 *   row_bias_gradient      dy : db
 *   sgemm                  a b : c : TA TB                   c = op(a) op(b)
 * activations (activations.c)
 *   relu_forward x : y=     relu_gradient y dy : dx=         also relu6_, tanh_, sigmoid_
 *   leaky_forward x : y= : : SLOPE     leaky_gradient y dy : dx= : : SLOPE
 *   gelu_forward x : y                 gelu_gradient x dy : dx=     the exact one, by erf
 *   dropout_forward x : y= mask : : SHARE     dropout_gradient mask dy : dx= : : SHARE     mask: byte;
 *                                   SHARE is dropped, the rest grows by 1 / (1 - SHARE)
 *   softmax_forward x : y= : OUTER LENGTH INNER     softmax_gradient y dy : dx= : OUTER LENGTH INNER
 * norms (batch_norm.c, batch_norm_gradient.c, layer_norm.c)
 *   batch_norm_forward         x scale shift rmean rvar : y mean rstd rmean= rvar= : : MOMENTUM EPSILON
 *                              r' = MOMENTUM r + (1 - MOMENTUM) batch; rvar is the unbiased one
 *   batch_norm_weight_gradient x dy mean rstd : dscale dshift
 *   batch_norm_input_gradient  x dy scale mean rstd dscale dshift : dx=    (= beside dy)
 *   batch_norm_inference       x scale shift rmean rvar : y= : : EPSILON
 *   batch_norm_gradient        x dy scale shift mean rstd : dscale dshift dx=    both gradients while
 *                              a channel is in the cache                   (= beside dy)
 *   batch_norm_relu_forward, _gradient, _inference and batch_norm_relu6_...: the same operands, with
 *                              the function behind the norm in the same pass; y is what comes out
 *                              of it and dy the gradient by that, and no other tensor is needed
 *   layer_norm_forward         x scale shift : y mean rstd : : EPSILON     along the last axis
 *   layer_norm_weight_gradient x dy mean rstd : dscale dshift
 *   layer_norm_input_gradient  x dy scale mean rstd : dx=                  (= beside dy)
 * pooling (pooling.c); padding never wins a maximum and never counts in a mean
 *   max_pool_forward  x : y where : KH KW SH SW TOP LEFT      where: index, pixel within its channel
 *   max_pool_gradient where dy : dx : KH KW SH SW TOP LEFT
 *   avg_pool_forward  x : y : KH KW SH SW TOP LEFT            avg_pool_gradient dy : dx : same
 *   global_avg_pool_forward x : y                             global_avg_pool_gradient dy : dx
 * plumbing (plumbing.c)
 *   add            x... : y=        (= beside the first)
 *   concat         x... : y : AXIS  AXIS counts the batch as axis 0
 *   split          y : x... : AXIS  the reverse
 *   copy           x : y            copy_scaled x : y= : : SCALE
 *   position_add   x p : y=         p is one sample, added to each
 *   position_gradient dy : dp       sum over samples
 *   last_moment    x : y            (N,T,F) -> (N,F)          last_moment_gradient dy : dx
 *   repeat_moment  x : y            (N,F) -> (N,T,F)          repeat_moment_gradient dy : dx
 *   upsample       x : y : F        each pixel FxF times      upsample_gradient dy : dx : F
 *   td_target      q qnext action reward : target= : : DISCOUNT    DQN: q, but at the action taken
 *                                   reward + DISCOUNT max(qnext)
 * sequences (sequences.c; the products inside go through gemm.h)
 *   embedding_forward tokens table : y                       embedding_gradient tokens dy : dtable
 *   lstm_forward   x wi ws b : y gates cells                 gates (N,T,4H) after their functions, in
 *                                   the order input, forget, cell, output; cells (N,T,H); start at 0
 *   lstm_gradient  dy gates cells ws : dgates                through time; before the functions
 *   lstm_weight_gradient x y dgates : dwi dws                bias and input by row_bias_gradient and
 *                                   linear_input_gradient over dgates
 *   attention_scores  qkv : scores : HEADS CAUSAL            (N,T,3F) -> (N,HEADS,T,T), scaled by
 *                                   1/sqrt(F/HEADS); what a causal one may not see is -1e30
 *   attention_values  qkv shares : out : HEADS               (N,T,F)
 *   attention_values_gradient qkv shares dout : dshares dqkv : HEADS       writes the value third
 *   attention_scores_gradient qkv dscores dqkv : dqkv= : HEADS CAUSAL      writes the other two
 * losses (losses.c): loss is one float, the mean over rows; labels: index, one a row
 *   softmax_cross_entropy          x labels : shares loss    ..._gradient shares labels : dx=
 *   cross_entropy                  x labels : loss           ..._gradient x labels : dx     x are shares already
 *   mean_squared_error             x target : loss           ..._gradient x target : dx     mean over all values
 *   binary_cross_entropy           x target : loss           ..._gradient x target : dx     x before its sigmoid
 *   accuracy                       x labels : share          share of rows whose greatest is right (evaluate)
 * updates (updates.c); p is learned
 *   sgd            p g : p= : : RATE DECAY                    g + DECAY p
 *   momentum       p g v : p= v= : : RATE MOMENTUM DECAY      v = MOMENTUM v + g + DECAY p; p -= RATE v
 *   adam           p g m v : p= m= v= : : RATE BETA1 BETA2 EPSILON    bias-corrected, as published
 * data (load.c)
 *   load           : x : STREAM FIRST : SCALE SHIFT           see data.h
 */
#ifndef FARMHAND_OPS_H
#define FARMHAND_OPS_H

#include "../engine.h"

/* Each family ends with NULL; ops.c joins them into the backend's list. */
extern const struct op_kind *const product_kinds[];
extern const struct op_kind *const activation_kinds[];
extern const struct op_kind *const batch_norm_kinds[];
extern const struct op_kind *const batch_norm_gradient_kinds[];
extern const struct op_kind *const layer_norm_kinds[];
extern const struct op_kind *const pooling_kinds[];
extern const struct op_kind *const plumbing_kinds[];
extern const struct op_kind *const sequence_kinds[];
extern const struct op_kind *const loss_kinds[];
extern const struct op_kind *const update_kinds[];
extern const struct op_kind *const load_kinds[];

#endif
