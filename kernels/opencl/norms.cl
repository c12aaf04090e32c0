/* norms.cl - batch normalisation of images (images, channels, pixels), layer normalisation of rows,
 * and their gradients.
 *
 * One work group of GROUP items per channel or row: each item sums a part, then the group adds the
 * parts in a tree. The mean is computed before the squared distances: in one pass, the difference
 * of two large sums would cancel most digits. An activation may be fused: -D ACTIVATION=1 is ReLU,
 * 2 is ReLU6. */
#ifndef ACTIVATION
#define ACTIVATION 0
#endif

/* NaN stays NaN. */
float activate(float value) {
    return ACTIVATION != 0 && value < 0.0f ? 0.0f : ACTIVATION == 2 && value > 6.0f ? 6.0f : value;
}

/* The gradient with respect to the input `value` of the fused activation. */
float mask_by_activation(float value, float gradient) {
    bool is_active = ACTIVATION == 0 || (value > 0.0f && (ACTIVATION == 1 || value < 6.0f));
    return is_active ? gradient : 0.0f;
}

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
batch_norm_forward(int images, int channels, int pixels, float momentum_rate, float epsilon,
                   global const float *x, global const float *scale, global const float *shift,
                   global float *y, global float *mean, global float *rstd, global float *rmean,
                   global float *rvar) {
    local float part[GROUP];
    int channel = (int)get_group_id(0), item = (int)get_local_id(0);
    float count = (float)images * (float)pixels, sum = 0.0f, squares = 0.0f;
    for (int image = 0; image < images; ++image) {
        for (int i = item; i < pixels; i += GROUP) {
            sum += x[((size_t)image * channels + channel) * pixels + i];
        }
    }
    float batch_mean = group_sum(sum, part) / count;
    for (int image = 0; image < images; ++image) {
        for (int i = item; i < pixels; i += GROUP) {
            float distance = x[((size_t)image * channels + channel) * pixels + i] - batch_mean;
            squares = distance * distance + squares;
        }
    }
    float squared_distances = group_sum(squares, part),
          batch_rstd = rsqrt(squared_distances / count + epsilon);
    float factor = scale[channel] * batch_rstd, offset = shift[channel] - batch_mean * factor;
    for (int image = 0; image < images; ++image) {
        for (int i = item; i < pixels; i += GROUP) {
            size_t at = ((size_t)image * channels + channel) * pixels + i;
            y[at] = activate(x[at] * factor + offset);
        }
    }
    if (item == 0) {
        mean[channel] = batch_mean;
        rstd[channel] = batch_rstd;
        rmean[channel] = momentum_rate * rmean[channel] + (1.0f - momentum_rate) * batch_mean;
        rvar[channel] = momentum_rate * rvar[channel] +
                        (1.0f - momentum_rate) * squared_distances / fmax(count - 1.0f, 1.0f);
    }
}

/* dscale and dshift of a channel, then dx: dy without its projections on the mean and on x. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
batch_norm_gradient(int images, int channels, int pixels, global const float *x,
                    global const float *dy, global const float *scale, global const float *shift,
                    global const float *mean, global const float *rstd, global float *dscale,
                    global float *dshift, global float *dx) {
    local float part[GROUP];
    int channel = (int)get_group_id(0), item = (int)get_local_id(0);
    float count = (float)images * (float)pixels, batch_mean = mean[channel],
          batch_rstd = rstd[channel];
    float factor = scale[channel] * batch_rstd, offset = shift[channel] - batch_mean * factor;
    float dscale_sum = 0.0f, dshift_sum = 0.0f;
    for (int image = 0; image < images; ++image) {
        for (int i = item; i < pixels; i += GROUP) {
            size_t at = ((size_t)image * channels + channel) * pixels + i;
            float grad = mask_by_activation(x[at] * factor + offset, dy[at]);
            dscale_sum = grad * (x[at] - batch_mean) * batch_rstd + dscale_sum;
            dshift_sum += grad;
        }
    }
    dscale_sum = group_sum(dscale_sum, part);
    dshift_sum = group_sum(dshift_sum, part);
    for (int image = 0; image < images; ++image) {
        for (int i = item; i < pixels; i += GROUP) {
            size_t at = ((size_t)image * channels + channel) * pixels + i;
            float value = (x[at] - batch_mean) * batch_rstd;
            float grad = mask_by_activation(x[at] * factor + offset, dy[at]);
            dx[at] = factor * (grad - dshift_sum / count - value * dscale_sum / count);
        }
    }
    if (item == 0) {
        dscale[channel] = dscale_sum;
        dshift[channel] = dshift_sum;
    }
}

/* The sums alone, without a fused activation: where the images have no gradient. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
batch_norm_weight_gradient(int images, int channels, int pixels, global const float *x,
                           global const float *dy, global const float *mean,
                           global const float *rstd, global float *dscale, global float *dshift) {
    local float part[GROUP];
    int channel = (int)get_group_id(0), item = (int)get_local_id(0);
    float dscale_sum = 0.0f, dshift_sum = 0.0f;
    for (int image = 0; image < images; ++image) {
        for (int i = item; i < pixels; i += GROUP) {
            size_t at = ((size_t)image * channels + channel) * pixels + i;
            dscale_sum = dy[at] * (x[at] - mean[channel]) * rstd[channel] + dscale_sum;
            dshift_sum += dy[at];
        }
    }
    dscale_sum = group_sum(dscale_sum, part);
    dshift_sum = group_sum(dshift_sum, part);
    if (item == 0) {
        dscale[channel] = dscale_sum;
        dshift[channel] = dshift_sum;
    }
}

kernel void batch_norm_inference(int count, int channels, int pixels, float epsilon,
                                 global const float *x, global const float *scale,
                                 global const float *shift, global const float *rmean,
                                 global const float *rvar, global float *y) {
    int i = (int)get_global_id(0);
    if (i >= count) {
        return;
    }
    int channel = i / pixels % channels;
    y[i] = activate((x[i] - rmean[channel]) * rsqrt(rvar[channel] + epsilon) * scale[channel] +
                    shift[channel]);
}

/* ---- layer normalisation: one work group per row of `length` values ---- */

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
layer_norm_forward(int length, float epsilon, global const float *x, global const float *scale,
                   global const float *shift, global float *y, global float *mean,
                   global float *rstd) {
    local float part[GROUP];
    int row = (int)get_group_id(0), item = (int)get_local_id(0);
    global const float *from = x + (size_t)row * length;
    float sum = 0.0f, squares = 0.0f;
    for (int i = item; i < length; i += GROUP) {
        sum += from[i];
    }
    float row_mean = group_sum(sum, part) / (float)length;
    for (int i = item; i < length; i += GROUP) {
        float distance = from[i] - row_mean;
        squares = distance * distance + squares;
    }
    float row_rstd = rsqrt(group_sum(squares, part) / (float)length + epsilon);
    for (int i = item; i < length; i += GROUP) {
        y[(size_t)row * length + i] = (from[i] - row_mean) * row_rstd * scale[i] + shift[i];
    }
    if (item == 0) {
        mean[row] = row_mean;
        rstd[row] = row_rstd;
    }
}

/* One work item per column, so that neighbours read adjacent values. */
kernel void layer_norm_weight_gradient(int rows, int length, global const float *x,
                                       global const float *dy, global const float *mean,
                                       global const float *rstd, global float *dscale,
                                       global float *dshift) {
    int i = (int)get_global_id(0);
    if (i >= length) {
        return;
    }
    float sum = 0.0f, weighted_sum = 0.0f;
    for (int row = 0; row < rows; ++row) {
        size_t at = (size_t)row * length + i;
        sum += dy[at];
        weighted_sum = dy[at] * ((x[at] - mean[row]) * rstd[row]) + weighted_sum;
    }
    dscale[i] = weighted_sum;
    dshift[i] = sum;
}

/* dx may be dy. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
layer_norm_input_gradient(int length, global const float *x, global const float *dy,
                          global const float *scale, global const float *mean,
                          global const float *rstd, global float *dx) {
    local float part[GROUP];
    int row = (int)get_group_id(0), item = (int)get_local_id(0);
    size_t first = (size_t)row * length;
    float row_mean = mean[row], row_rstd = rstd[row], sum = 0.0f, weighted_sum = 0.0f;
    for (int i = item; i < length; i += GROUP) {
        float grad = dy[first + i] * scale[i];
        sum += grad;
        weighted_sum = grad * (x[first + i] - row_mean) + weighted_sum;
    }
    float mean_grad = group_sum(sum, part) / (float)length;
    float projection = group_sum(weighted_sum, part) / (float)length * row_rstd * row_rstd;
    for (int i = item; i < length; i += GROUP) {
        float grad = dy[first + i] * scale[i];
        dx[first + i] = (grad - mean_grad - (x[first + i] - row_mean) * projection) * row_rstd;
    }
}
