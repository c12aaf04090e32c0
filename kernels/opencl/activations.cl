/* activations.cl - functions of each value, and the way of a gradient back through them.
 *
 * One work item a value. A slope follows from what came out of the function (from what went in, for
 * GELU), so the backward kernels take that and nothing else. The function is chosen when the file
 * is built: -D ACTIVATION=RELU, RELU6, LEAKY, TANH, SIGMOID or GELU.
 */
#define RELU 0
#define RELU6 1
#define LEAKY 2
#define TANH 3
#define SIGMOID 4
#define GELU 5
#ifndef ACTIVATION
#define ACTIVATION RELU
#endif

/* The share of a normal distribution below x. */
float below(float x) { return 0.5f * (1.0f + erf(x * 0.70710678f)); }

/* The hyperbolic tangent within 2.5 ulp, in plain arithmetic, so that a compiler can make vectors of
 * neighbours; a library's own is often a call for every value. Near zero a polynomial, further out
 * 1 - 2 / (e^2x + 1), where e^2x is 2^n times what is left over, n being a whole number. */
float bent(float x) {
    const float round = 0x1.8p23f; /* behind it there is no room for what follows the point */
    float size = x < 0.0f ? -x : x, z = x * x;
    float near = -0.005717041f;
    near = near * z + 0.020650584f;
    near = near * z - 0.053743497f;
    near = near * z + 0.13331491f;
    near = near * z - 0.33333284f;
    near = x * z * near + x;
    float twice = 2.0f * (size > 9.0f ? 9.0f : size); /* from there on it is 1 */
    float shifted = twice * 1.44269504f + round;
    float n = shifted - round;
    float rest = twice - n * 0.693359375f;
    rest = rest + n * 2.12194440e-4f;
    float raised = 0.0013814841f;
    raised = raised * rest + 0.008368703f;
    raised = raised * rest + 0.04166838f;
    raised = raised * rest + 0.16666521f;
    raised = raised * rest + 0.49999994f;
    raised = rest * rest * raised + rest + 1.0f;
    raised = raised * as_float((as_int(shifted) - as_int(round) + 127) << 23);
    float far = 1.0f - 2.0f / (raised + 1.0f);
    return size > 0.625f ? (x < 0.0f ? -far : far) : near;
}

float function_of(float x, float slope) {
#if ACTIVATION == RELU
    return fmax(x, 0.0f);
#elif ACTIVATION == RELU6
    return fmin(fmax(x, 0.0f), 6.0f);
#elif ACTIVATION == LEAKY
    return x > 0.0f ? x : slope * x;
#elif ACTIVATION == TANH
    return bent(x);
#elif ACTIVATION == SIGMOID
    return 1.0f / (1.0f + exp(-x));
#else
    return x * below(x);
#endif
}

/* The slope where `seen` came out of the function (went into it, for GELU). */
float slope_at(float seen, float slope) {
#if ACTIVATION == RELU
    return seen > 0.0f ? 1.0f : 0.0f;
#elif ACTIVATION == RELU6
    return seen > 0.0f && seen < 6.0f ? 1.0f : 0.0f;
#elif ACTIVATION == LEAKY
    return seen > 0.0f ? 1.0f : slope;
#elif ACTIVATION == TANH
    return 1.0f - seen * seen;
#elif ACTIVATION == SIGMOID
    return seen * (1.0f - seen);
#else
    return below(seen) + seen * 0.39894228f * exp(-0.5f * seen * seen);
#endif
}

kernel void activation_forward(int count, float slope, global const float *x, global float *y) {
    int i = (int)get_global_id(0);
    if (i < count)
        y[i] = function_of(x[i], slope);
}

kernel void activation_gradient(int count, float slope, global const float *seen,
                                global const float *dy, global float *dx) {
    int i = (int)get_global_id(0);
    if (i < count)
        dx[i] = slope_at(seen[i], slope) * dy[i];
}

/* A bias and the function behind it in one pass, over rows (inner = 1) or images (inner = pixels
 * of a channel): one read and one write where two kernels would need two of each. */
kernel void bias_activation(int count, int channels, int inner, float slope, global const float *x,
                            global const float *bias, global float *y) {
    int i = (int)get_global_id(0);
    if (i < count)
        y[i] = function_of(x[i] + bias[i / inner % channels], slope);
}

/* What was dropped is a byte a value: 0, or 1 for what stays and grows by `grown`. Who drops what
 * is decided where the mask is made, so that every backend drops the same. */
kernel void masked(int count, float grown, global const uchar *mask, global const float *x,
                   global float *y) {
    int i = (int)get_global_id(0);
    if (i < count)
        y[i] = mask[i] ? x[i] * grown : 0.0f;
}
