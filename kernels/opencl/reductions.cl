/* reduce.cl - sums over a batch: the gradient of every bias, and the mean of every channel.
 *
 * A sum has one owner: the item that writes it walks through all that goes into it, in a fixed
 * order, so that nothing is lost to atomics and a run repeats bit by bit.
 */

/* Rows: one item a column, neighbours read neighbours. */
kernel void row_bias_gradient(int rows, int columns, global const float *dy, global float *db) {
    int column = (int)get_global_id(0);
    if (column >= columns)
        return;
    float sum = 0.0f;
    for (int row = 0; row < rows; ++row)
        sum += dy[(size_t)row * columns + column];
    db[column] = sum;
}

/* Images: one group of GROUP items a channel; each adds up its part, then they add each other up
 * in halves. */
#ifndef GROUP
#define GROUP 64
#endif
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
channel_bias_gradient(int images, int channels, int pixels, global const float *dy,
                      global float *db) {
    local float part[GROUP];
    int channel = (int)get_group_id(0), mine = (int)get_local_id(0);
    float sum = 0.0f;
    for (int image = 0; image < images; ++image) {
        global const float *from = dy + ((size_t)image * channels + channel) * pixels;
        for (int i = mine; i < pixels; i += GROUP)
            sum += from[i];
    }
    part[mine] = sum;
    for (int half_of = GROUP / 2; half_of > 0; half_of /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (mine < half_of)
            part[mine] += part[mine + half_of];
    }
    if (mine == 0)
        db[channel] = part[0];
}
