/* activations.cl - element-wise activations and their gradients.
 *
 * One work item per value. A gradient follows from the output of the activation (for GELU, from its
 * input), so the backward kernels take only that. The activation is chosen when the file is built:
 * -D ACTIVATION=RELU, RELU6, LEAKY, TANH, SIGMOID or GELU. */
#define RELU 0
#define RELU6 1
#define LEAKY 2
#define TANH 3
#define SIGMOID 4
#define GELU 5
#ifndef ACTIVATION
#define ACTIVATION RELU
#endif

/* Standard normal CDF. */
float normal_cdf(float x) { return 0.5f * (1.0f + erf(x * 0.70710678f)); }

/* tanh within 2.5 ulp, in plain arithmetic, so that a compiler can vectorise over neighbouring
 * items; the tanh() of a library is often a call per value. Near zero a polynomial, else 1 - 2 /
 * (e^2x + 1), where e^2x = 2^n e^rest with an integer n. */
float tanh_approx(float x) {
    const float round =
        0x1.8p23f; /* adding it rounds to an integer: no bits are left for a fraction */
    float size = x < 0.0f ? -x : x, z = x * x;
    float near = -0.005717041f;
    near = near * z + 0.020650584f;
    near = near * z - 0.053743497f;
    near = near * z + 0.13331491f;
    near = near * z - 0.33333284f;
    near = x * z * near + x;
    float twice = 2.0f * (size > 9.0f ? 9.0f : size); /* beyond 9, tanh is 1 in single precision */
    float shifted = twice * 1.44269504f + round;
    float n = shifted - round;
    float rest = twice - n * 0.693359375f;
    rest = rest + n * 2.12194440e-4f;
    float power = 0.0013814841f;
    power = power * rest + 0.008368703f;
    power = power * rest + 0.04166838f;
    power = power * rest + 0.16666521f;
    power = power * rest + 0.49999994f;
    power = rest * rest * power + rest + 1.0f;
    power = power * as_float((as_int(shifted) - as_int(round) + 127) << 23);
    float far = 1.0f - 2.0f / (power + 1.0f);
    return size > 0.625f ? (x < 0.0f ? -far : far) : near;
}

/* NaN stays NaN, as on the CPU, and ends a run; fmax() would make it 0. */
float activate(float x, float slope) {
#if ACTIVATION == RELU
    return x < 0.0f ? 0.0f : x;
#elif ACTIVATION == RELU6
    return x < 0.0f ? 0.0f : x > 6.0f ? 6.0f : x;
#elif ACTIVATION == LEAKY
    return x > 0.0f ? x : slope * x;
#elif ACTIVATION == TANH
    return tanh_approx(x);
#elif ACTIVATION == SIGMOID
    return 1.0f / (1.0f + exp(-x));
#else
    return x * normal_cdf(x);
#endif
}

/* The derivative, from the output y of the activation (for GELU, from its input). */
float activation_grad(float y, float slope) {
#if ACTIVATION == RELU
    return y > 0.0f ? 1.0f : 0.0f;
#elif ACTIVATION == RELU6
    return y > 0.0f && y < 6.0f ? 1.0f : 0.0f;
#elif ACTIVATION == LEAKY
    return y > 0.0f ? 1.0f : slope;
#elif ACTIVATION == TANH
    return 1.0f - y * y;
#elif ACTIVATION == SIGMOID
    return y * (1.0f - y);
#else
    return normal_cdf(y) + y * 0.39894228f * exp(-0.5f * y * y);
#endif
}

kernel void activation_forward(int count, float slope, global const float *x, global float *y) {
    int i = (int)get_global_id(0);
    if (i < count) {
        y[i] = activate(x[i], slope);
    }
}

kernel void activation_gradient(int count, float slope, global const float *y,
                                global const float *dy, global float *dx) {
    int i = (int)get_global_id(0);
    if (i < count) {
        dx[i] = activation_grad(y[i], slope) * dy[i];
    }
}

/* The gradient of dropout. The mask has one byte per value: 1 for a value that was kept and scaled.
 * It is drawn in the forward pass, so that all backends drop the same values. */
kernel void apply_mask(int count, float scale, global const uchar *mask, global const float *x,
                       global float *y) {
    int i = (int)get_global_id(0);
    if (i < count) {
        y[i] = mask[i] ? x[i] * scale : 0.0f;
    }
}
