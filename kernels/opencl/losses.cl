/* losses.cl - where a forward pass ends and the backward pass begins.
 *
 * One work item a row for what looks along a row; the rows' losses are then added up by one item,
 * always in the same order, so that a run repeats bit by bit. There are few rows in a batch.
 */

/* Shares that add up to one, and the logarithm of the right one. */
kernel void softmax_cross_entropy(int rows, int classes, global const float *x,
                                  global const int *labels, global float *shares,
                                  global float *row_loss) {
    int row = (int)get_global_id(0);
    if (row >= rows)
        return;
    global const float *from = x + (size_t)row * classes;
    global float *to = shares + (size_t)row * classes;
    float greatest = from[0];
    for (int c = 1; c < classes; ++c)
        greatest = fmax(greatest, from[c]);
    float sum = 0.0f;
    for (int c = 0; c < classes; ++c) {
        to[c] = exp(from[c] - greatest);
        sum += to[c];
    }
    for (int c = 0; c < classes; ++c)
        to[c] /= sum;
    int label = labels[row]; /* one that is no class makes the loss no number, which ends a run */
    row_loss[row] = label >= 0 && label < classes ? log(sum) + greatest - from[label] : NAN;
}

/* What the model says, less what is so, a batch's part of it. */
kernel void softmax_cross_entropy_gradient(int rows, int classes, global const float *shares,
                                           global const int *labels, global float *dx) {
    int row = (int)get_global_id(0), c = (int)get_global_id(1);
    if (row >= rows || c >= classes)
        return;
    size_t i = (size_t)row * classes + c;
    dx[i] = (shares[i] - (c == labels[row] ? 1.0f : 0.0f)) / (float)rows;
}

kernel void squared_error(int count, global const float *x, global const float *target,
                          global float *row_loss) {
    int i = (int)get_global_id(0);
    if (i < count)
        row_loss[i] = (x[i] - target[i]) * (x[i] - target[i]);
}

kernel void squared_error_gradient(int count, global const float *x, global const float *target,
                                   global float *dx) {
    int i = (int)get_global_id(0);
    if (i < count)
        dx[i] = 2.0f * (x[i] - target[i]) / (float)count;
}

/* The mean of what the rows lost. */
kernel void mean_loss(int rows, global const float *row_loss, global float *loss) {
    if (get_global_id(0) != 0)
        return;
    float sum = 0.0f;
    for (int row = 0; row < rows; ++row)
        sum += row_loss[row];
    loss[0] = sum / (float)rows;
}

/* The share of rows whose greatest value stands at their label. */
kernel void accuracy(int rows, int classes, global const float *x, global const int *labels,
                     global float *share) {
    if (get_global_id(0) != 0)
        return;
    int right = 0;
    for (int row = 0; row < rows; ++row) {
        global const float *from = x + (size_t)row * classes;
        int best = 0;
        for (int c = 1; c < classes; ++c)
            best = from[c] > from[best] ? c : best;
        right += best == labels[row];
    }
    share[0] = (float)right / (float)rows;
}
