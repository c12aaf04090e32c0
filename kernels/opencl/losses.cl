/* losses.cl - losses, their gradients, and accuracy.
 *
 * One work item per row; one item then adds the losses of all rows in order, so that a run repeats
 * bit by bit. A batch has few rows. Losses over values have many: one group adds those. */

/* probs = softmax(x), and the loss -log(probs[label]) of every row. */
kernel void softmax_cross_entropy(int rows, int classes, global const float *x,
                                  global const int *labels, global float *probs,
                                  global float *row_loss) {
    int row = (int)get_global_id(0);
    if (row >= rows) {
        return;
    }
    global const float *from = x + (size_t)row * classes;
    global float *to = probs + (size_t)row * classes;
    float max_value = from[0];
    for (int c = 1; c < classes; ++c) {
        max_value = fmax(max_value, from[c]);
    }
    float sum = 0.0f;
    for (int c = 0; c < classes; ++c) {
        to[c] = exp(from[c] - max_value);
        sum += to[c];
    }
    for (int c = 0; c < classes; ++c) {
        to[c] /= sum;
    }
    int label = labels[row]; /* a label outside the classes makes the loss NaN, which ends a run */
    row_loss[row] = label >= 0 && label < classes ? log(sum) + max_value - from[label] : NAN;
}

/* dx = (probs - one_hot(label)) / rows. */
kernel void softmax_cross_entropy_gradient(int rows, int classes, global const float *probs,
                                           global const int *labels, global float *dx) {
    int row = (int)get_global_id(0), c = (int)get_global_id(1);
    if (row >= rows || c >= classes) {
        return;
    }
    size_t i = (size_t)row * classes + c;
    dx[i] = (probs[i] - (c == labels[row] ? 1.0f : 0.0f)) / (float)rows;
}

/* The logarithm of a probability stays finite; fmax() would hide NaN, which has to end a run. */
float clamp_probability(float p) { return p < 1e-12f ? 1e-12f : p; }

/* The loss -log(x[label]) of every row of probabilities. */
kernel void cross_entropy(int rows, int classes, global const float *x, global const int *labels,
                          global float *row_loss) {
    int row = (int)get_global_id(0);
    if (row < rows) {
        int label = labels[row];
        bool known = label >= 0 && label < classes;
        row_loss[row] = known ? -log(clamp_probability(x[(size_t)row * classes + label])) : NAN;
    }
}

kernel void cross_entropy_gradient(int rows, int classes, global const float *x,
                                   global const int *labels, global float *dx) {
    int row = (int)get_global_id(0), c = (int)get_global_id(1);
    if (row >= rows || c >= classes) {
        return;
    }
    size_t i = (size_t)row * classes + c;
    dx[i] = c == labels[row] ? -1.0f / (clamp_probability(x[i]) * (float)rows) : 0.0f;
}

/* max(x, 0) - x t + log(1 + e^-|x|): the exponential cannot overflow. x are logits. */
kernel void binary_cross_entropy(int count, global const float *x, global const float *target,
                                 global float *row_loss) {
    int i = (int)get_global_id(0);
    if (i < count) {
        row_loss[i] = fmax(x[i], 0.0f) - x[i] * target[i] + log(1.0f + exp(-fabs(x[i])));
    }
}

kernel void binary_cross_entropy_gradient(int count, global const float *x,
                                          global const float *target, global float *dx) {
    int i = (int)get_global_id(0);
    if (i < count) {
        dx[i] = (1.0f / (1.0f + exp(-x[i])) - target[i]) / (float)count;
    }
}

kernel void squared_error(int count, global const float *x, global const float *target,
                          global float *row_loss) {
    int i = (int)get_global_id(0);
    if (i < count) {
        row_loss[i] = (x[i] - target[i]) * (x[i] - target[i]);
    }
}

kernel void squared_error_gradient(int count, global const float *x, global const float *target,
                                   global float *dx) {
    int i = (int)get_global_id(0);
    if (i < count) {
        dx[i] = 2.0f * (x[i] - target[i]) / (float)count;
    }
}

/* The mean of the losses of all rows. */
kernel void mean_loss(int rows, global const float *row_loss, global float *loss) {
    if (get_global_id(0) != 0) {
        return;
    }
    float sum = 0.0f;
    for (int row = 0; row < rows; ++row) {
        sum += row_loss[row];
    }
    loss[0] = sum / (float)rows;
}

/* The same for many values: a group of GROUP items sums parts, then adds them in a tree. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
mean_of_values(int count, global const float *losses, global float *loss) {
    local float part[GROUP];
    int item = (int)get_local_id(0);
    float sum = 0.0f;
    for (int i = item; i < count; i += GROUP) {
        sum += losses[i];
    }
    sum = group_sum(sum, part);
    if (item == 0) {
        loss[0] = sum / (float)count;
    }
}

/* DQN: q, except at the action taken, where it is reward + discount max(following). An action that
 * does not exist makes the target NaN, which ends a run. target may be q. */
kernel void td_target(int rows, int actions, float discount, global const float *q,
                      global const float *following, global const int *action,
                      global const float *reward, global float *target) {
    int row = (int)get_global_id(0);
    if (row >= rows) {
        return;
    }
    size_t first = (size_t)row * actions;
    float best = following[first];
    for (int n = 1; n < actions; ++n) {
        float value = following[first + n];
        best = value > best || isnan(value) ? value : best;
    }
    int taken = action[row];
    bool known = taken >= 0 && taken < actions;
    for (int n = 0; n < actions; ++n) {
        target[first + n] = q[first + n];
    }
    target[first + (known ? taken : 0)] = known ? reward[row] + discount * best : NAN;
}

/* The fraction of rows whose largest value is at their label. */
kernel void accuracy(int rows, int classes, global const float *x, global const int *labels,
                     global float *accuracy_out) {
    if (get_global_id(0) != 0) {
        return;
    }
    int correct = 0;
    for (int row = 0; row < rows; ++row) {
        global const float *from = x + (size_t)row * classes;
        int argmax = 0;
        for (int c = 1; c < classes; ++c) {
            argmax = from[c] > from[argmax] ? c : argmax;
        }
        correct += argmax == labels[row];
    }
    accuracy_out[0] = (float)correct / (float)rows;
}
