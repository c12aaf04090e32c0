/* reductions.cl - sums over a batch: the gradients of biases.
 *
 * One work item or group owns a sum and adds its terms in a fixed order: no atomics, so a run
 * repeats bit by bit. */

/* dy is (rows, columns): one work item per column, so that neighbours read adjacent values. */
kernel void row_bias_gradient(int rows, int columns, global const float *dy, global float *db) {
    int column = (int)get_global_id(0);
    if (column >= columns) {
        return;
    }
    float sum = 0.0f;
    for (int row = 0; row < rows; ++row) {
        sum += dy[(size_t)row * columns + column];
    }
    db[column] = sum;
}

/* dy is (images, channels, pixels): one work group per channel; each item sums a part, then the
 * group adds the parts in a tree. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
channel_bias_gradient(int images, int channels, int pixels, global const float *dy,
                      global float *db) {
    local float part[GROUP];
    int channel = (int)get_group_id(0), item = (int)get_local_id(0);
    float sum = 0.0f;
    for (int image = 0; image < images; ++image) {
        global const float *from = dy + ((size_t)image * channels + channel) * pixels;
        for (int i = item; i < pixels; i += GROUP) {
            sum += from[i];
        }
    }
    sum = group_sum(sum, part);
    if (item == 0) {
        db[channel] = sum;
    }
}
