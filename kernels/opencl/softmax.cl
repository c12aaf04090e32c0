/* softmax.cl - softmax along one axis of (outer, length, inner), and its gradient.
 *
 * One work item per row; its values are `inner` apart. y may be x, and dx may be dy. */

kernel void softmax_forward(int outer, int length, int inner, global const float *x,
                            global float *y) {
    int row = (int)get_global_id(0);
    if (row >= outer * inner) {
        return;
    }
    size_t first = (size_t)(row / inner) * length * inner + row % inner;
    float max_value = x[first], sum = 0.0f;
    for (int i = 1; i < length; ++i) {
        max_value = fmax(max_value, x[first + (size_t)i * inner]);
    }
    for (int i = 0; i < length; ++i) {
        float power = exp(x[first + (size_t)i * inner] - max_value);
        y[first + (size_t)i * inner] = power;
        sum += power;
    }
    for (int i = 0; i < length; ++i) {
        y[first + (size_t)i * inner] /= sum;
    }
}

/* dx = y (dy - sum(y dy)). */
kernel void softmax_gradient(int outer, int length, int inner, global const float *y,
                             global const float *dy, global float *dx) {
    int row = (int)get_global_id(0);
    if (row >= outer * inner) {
        return;
    }
    size_t first = (size_t)(row / inner) * length * inner + row % inner;
    float sum = 0.0f;
    for (int i = 0; i < length; ++i) {
        sum = y[first + (size_t)i * inner] * dy[first + (size_t)i * inner] + sum;
    }
    for (int i = 0; i < length; ++i) {
        size_t at = first + (size_t)i * inner;
        dx[at] = y[at] * (dy[at] - sum);
    }
}
