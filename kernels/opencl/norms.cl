/* norms.cl - batch norm: every channel brought to mean 0 and deviation 1 over the batch.
 *
 * A channel has one group of GROUP items: each adds up its part, then they add each other up in
 * halves. The mean is known before the squares are summed: in one pass the difference of two great
 * numbers would eat the digits. A function may follow in the same pass: AFTER=1 is ReLU, 2 ReLU6.
 */
#ifndef GROUP
#define GROUP 64
#endif
#ifndef AFTER
#define AFTER 0
#endif

float after(float value) {
    return AFTER == 0 ? value : AFTER == 1 ? fmax(value, 0.0f) : fmin(fmax(value, 0.0f), 6.0f);
}

/* What of a gradient passes that function where it was given `value`. */
float passed(float value, float gradient) {
    bool passes = AFTER == 0 || (value > 0.0f && (AFTER == 1 || value < 6.0f));
    return passes ? gradient : 0.0f;
}

/* The sum of `value` over the items of a group, known to all of them. */
float sum_of_group(float value, local float *part) {
    int mine = (int)get_local_id(0);
    part[mine] = value;
    for (int half_of = GROUP / 2; half_of > 0; half_of /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (mine < half_of)
            part[mine] += part[mine + half_of];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum = part[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    return sum;
}

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
batch_norm_forward(int images, int channels, int pixels, float kept, float epsilon,
                   global const float *x, global const float *scale, global const float *shift,
                   global float *y, global float *mean, global float *rstd, global float *rmean,
                   global float *rvar) {
    local float part[GROUP];
    int channel = (int)get_group_id(0), mine = (int)get_local_id(0);
    float count = (float)images * (float)pixels, sum = 0.0f, squares = 0.0f;
    for (int image = 0; image < images; ++image)
        for (int i = mine; i < pixels; i += GROUP)
            sum += x[((size_t)image * channels + channel) * pixels + i];
    float middle = sum_of_group(sum, part) / count;
    for (int image = 0; image < images; ++image)
        for (int i = mine; i < pixels; i += GROUP) {
            float away = x[((size_t)image * channels + channel) * pixels + i] - middle;
            squares = away * away + squares;
        }
    float spread = sum_of_group(squares, part), inverse = rsqrt(spread / count + epsilon);
    float by = scale[channel] * inverse, plus = shift[channel] - middle * by;
    for (int image = 0; image < images; ++image)
        for (int i = mine; i < pixels; i += GROUP) {
            size_t at = ((size_t)image * channels + channel) * pixels + i;
            y[at] = after(x[at] * by + plus);
        }
    if (mine == 0) {
        mean[channel] = middle;
        rstd[channel] = inverse;
        rmean[channel] = kept * rmean[channel] + (1.0f - kept) * middle;
        rvar[channel] = kept * rvar[channel] + (1.0f - kept) * spread / fmax(count - 1.0f, 1.0f);
    }
}

/* Both sums of a channel, then the gradient less its part along the mean and along the values. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
batch_norm_gradient(int images, int channels, int pixels, global const float *x,
                    global const float *dy, global const float *scale, global const float *shift,
                    global const float *mean, global const float *rstd, global float *dscale,
                    global float *dshift, global float *dx) {
    local float part[GROUP];
    int channel = (int)get_group_id(0), mine = (int)get_local_id(0);
    float count = (float)images * (float)pixels, middle = mean[channel], inverse = rstd[channel];
    float by = scale[channel] * inverse, plus = shift[channel] - middle * by;
    float along = 0.0f, straight = 0.0f;
    for (int image = 0; image < images; ++image)
        for (int i = mine; i < pixels; i += GROUP) {
            size_t at = ((size_t)image * channels + channel) * pixels + i;
            float back = passed(x[at] * by + plus, dy[at]);
            along = back * (x[at] - middle) * inverse + along;
            straight += back;
        }
    along = sum_of_group(along, part);
    straight = sum_of_group(straight, part);
    for (int image = 0; image < images; ++image)
        for (int i = mine; i < pixels; i += GROUP) {
            size_t at = ((size_t)image * channels + channel) * pixels + i;
            float value = (x[at] - middle) * inverse;
            float back = passed(x[at] * by + plus, dy[at]);
            dx[at] = by * (back - straight / count - value * along / count);
        }
    if (mine == 0) {
        dscale[channel] = along;
        dshift[channel] = straight;
    }
}

kernel void batch_norm_inference(int count, int channels, int pixels, float epsilon,
                                 global const float *x, global const float *scale,
                                 global const float *shift, global const float *rmean,
                                 global const float *rvar, global float *y) {
    int i = (int)get_global_id(0);
    if (i >= count)
        return;
    int channel = i / pixels % channels;
    y[i] = after((x[i] - rmean[channel]) * rsqrt(rvar[channel] + epsilon) * scale[channel] +
                 shift[channel]);
}
