/* ops.h - every operation of the CPU backend, by family.
 *
 * Images are (N, C, H, W), sequences (N, T, F), rows (N, F), all contiguous. Operations overwrite
 * their outputs, they never add to them. "=" marks an output that may be the memory of the input of
 * the same name, or of the input named in parentheses (in place). dX is the gradient of the loss
 * with respect to X. A line reads INPUTS : OUTPUTS : INTEGERS : FLOATS.
 *
 * WINDOW, for convolution and pooling: KH KW SH SW TOP LEFT are kernel, stride, and padding before
 * the image; the padding after it follows from the shapes.
 *
 * products (conv.c, linear.c; a transposed convolution is the input gradient of a plain one)
 *   conv_forward           x w b? : y : GROUPS WINDOW
 *   conv_weight_gradient   x dy : dw : GROUPS WINDOW
 *   conv_input_gradient    w dy : dx : GROUPS WINDOW
 *   channel_bias           y b : y=                adds b[c] to every pixel of channel c
 *   channel_bias_gradient  dy : db
 *   linear_forward         x w b? : y              y = x wT + b; w is (OUT, IN), x any rows
 *   linear_weight_gradient x dy : dw
 *   linear_input_gradient  w dy : dx
 *   row_bias_gradient      dy : db
 *   sgemm                  a b : c : TA TB         c = op(a) op(b)
 * activations (activations.c)
 *   relu_forward           x : y=                  also relu6_, tanh_, sigmoid_
 *   relu_gradient          y dy : dx=              (dy); also relu6_, tanh_, sigmoid_
 *   leaky_forward          x : y= : : SLOPE
 *   leaky_gradient         y dy : dx= : : SLOPE    (dy)
 *   gelu_forward           x : y                   exact, by erf
 *   gelu_gradient          x dy : dx=              (dy)
 *   dropout_forward        x : y= mask : : RATE    mask: byte; RATE of the values become 0, and
 *                                                  the others are scaled by 1 / (1 - RATE)
 *   dropout_gradient       mask dy : dx= : : RATE  (dy)
 *   softmax_forward        x : y= : OUTER LENGTH INNER
 *   softmax_gradient       y dy : dx= : OUTER LENGTH INNER   (dy)
 * normalisation (batch_norm.c, batch_norm_gradient.c, layer_norm.c)
 *   batch_norm_forward     x scale shift rmean rvar : y mean rstd rmean= rvar= : : MOMENTUM EPSILON
 *                                                  r = MOMENTUM r + (1 - MOMENTUM) batch, for the
 *                                                  running mean and the unbiased variance
 *   batch_norm_weight_gradient  x dy mean rstd : dscale dshift
 *   batch_norm_input_gradient   x dy scale mean rstd dscale dshift : dx=   (dy)
 *   batch_norm_inference   x scale shift rmean rvar : y= : : EPSILON
 *   batch_norm_gradient    x dy scale shift mean rstd : dscale dshift dx=  (dy)
 *                                                  both gradients while a channel is in the cache
 *   batch_norm_relu_forward, _gradient, _inference and batch_norm_relu6_...: the same operands,
 *                                                  fused with the activation; y is its output and
 *                                                  dy the gradient with respect to that
 *   layer_norm_forward     x scale shift : y mean rstd : : EPSILON         along the last axis
 *   layer_norm_weight_gradient  x dy mean rstd : dscale dshift
 *   layer_norm_input_gradient   x dy scale mean rstd : dx=                 (dy)
 * pooling (pooling.c); padding never wins a maximum and never counts in a mean
 *   max_pool_forward       x : y where : WINDOW    where: index of the pixel within its channel
 *   max_pool_gradient      where dy : dx : WINDOW
 *   avg_pool_forward       x : y : WINDOW
 *   avg_pool_gradient      dy : dx : WINDOW
 *   global_avg_pool_forward   x : y
 *   global_avg_pool_gradient  dy : dx
 * shapes (shape_ops.c)
 *   add                    x... : y=               (the first)
 *   concat                 x... : y : AXIS         AXIS counts the batch as axis 0
 *   split                  y : x... : AXIS         the reverse
 *   copy                   x : y
 *   copy_scaled            x : y= : : SCALE
 *   position_add           x p : y=                adds p (shape of one sample) to every sample
 *   position_gradient      dy : dp                 sum over samples
 *   last_moment            x : y                   the last time step: (N,T,F) -> (N,F)
 *   last_moment_gradient   dy : dx
 *   repeat_moment          x : y                   one step for all times: (N,F) -> (N,T,F)
 *   repeat_moment_gradient dy : dx
 *   upsample               x : y : F               repeats each pixel F x F times
 *   upsample_gradient      dy : dx : F
 *   td_target              q qnext action reward : target= : : DISCOUNT    (q)
 *                                                  DQN: q, except at the action taken, where it is
 *                                                  reward + DISCOUNT max(qnext)
 * sequences (embedding.c, lstm.c, attention.c)
 *   embedding_forward      tokens table : y
 *   embedding_gradient     tokens dy : dtable
 *   embedding_gradient_add tokens dy dtable : dtable=         adds to what is there
 *   lstm_forward           x wi ws b : y gates cells
 *                                                  gates (N,T,4H) after their functions, in the
 *                                                  order input, forget, cell, output; cells
 *                                                  (N,T,H); the initial state is 0
 *   lstm_gradient          dy gates cells ws : dgates         through time; before the functions
 *   lstm_weight_gradient   x y dgates : dwi dws
 *                                                  (bias and input: row_bias_gradient and
 *                                                  linear_input_gradient over dgates)
 *   attention_scores       qkv : scores : HEADS CAUSAL        (N,T,3F) -> (N,HEADS,T,T), scaled by
 *                                                  1/sqrt(F/HEADS); masked scores are -1e30
 *   attention_values       qkv probs : out : HEADS            (N,T,F)
 *   attention_values_gradient  qkv probs dout : dprobs dqkv : HEADS    writes the values of dqkv
 *   attention_scores_gradient  qkv dscores dqkv : dqkv= : HEADS CAUSAL  writes queries and keys
 * losses (losses.c): loss is one float, the mean over rows; labels: index, one per row
 *   softmax_cross_entropy            x labels : probs loss
 *   softmax_cross_entropy_gradient   probs labels : dx=       (probs)
 *   cross_entropy                    x labels : loss          x are probabilities
 *   cross_entropy_gradient           x labels : dx
 *   mean_squared_error               x target : loss          the mean over all values
 *   mean_squared_error_gradient      x target : dx
 *   binary_cross_entropy             x target : loss          x are logits
 *   binary_cross_entropy_gradient    x target : dx
 *   accuracy                         x labels : accuracy      the fraction of rows with the
 *                                                  largest value at the label (phase evaluate)
 * optimizers (optimizers.c); p is learned
 *   sgd                    p g : p= : : RATE DECAY            p -= RATE (g + DECAY p)
 *   momentum               p g v : p= v= : : RATE MOMENTUM DECAY
 *                                                  v = MOMENTUM v + g + DECAY p; p -= RATE v
 *   adam                   p g m v : p= m= v= : : RATE BETA1 BETA2 EPSILON     bias-corrected
 *   squared_norm           g : total               the sum of squares, one float
 *   squared_norm_add       g total : total=        adds it to what is there
 *   adamw                  p g m v total : p= m= v= : : RATE BETA1 BETA2 EPSILON DECAY CLIP SCALE
 *                                                  Adam on SCALE g, limited to a norm of CLIP
 *                                                  (total: the squared norm of all g), and a decay
 * data (load.c)
 *   load                   : x : STREAM FIRST ADVANCE : SCALE SHIFT   see dataset.h
 */
#ifndef FARMHAND_OPS_H
#define FARMHAND_OPS_H

#include "../engine.h"

/* Each family ends with NULL; ops.c joins them into the list of the backend. */
extern const struct op_kind *const matmul_kinds[];
extern const struct op_kind *const activation_kinds[];
extern const struct op_kind *const batch_norm_kinds[];
extern const struct op_kind *const batch_norm_gradient_kinds[];
extern const struct op_kind *const layer_norm_kinds[];
extern const struct op_kind *const pooling_kinds[];
extern const struct op_kind *const shape_kinds[];
extern const struct op_kind *const embedding_kinds[];
extern const struct op_kind *const lstm_kinds[];
extern const struct op_kind *const attention_kinds[];
extern const struct op_kind *const loss_kinds[];
extern const struct op_kind *const optimizer_kinds[];
extern const struct op_kind *const load_kinds[];

#endif
