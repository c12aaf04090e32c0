/* losses.cl - losses, their gradients, and accuracy.
 *
 * One work item per row; one item then adds the losses of all rows in order, so that a run repeats
 * bit by bit. A batch has few rows. */

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
