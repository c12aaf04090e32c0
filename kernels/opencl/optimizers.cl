/* optimizers.cl - parameter updates in place, one work item per parameter. */

kernel void sgd(int count, float rate, float decay, global float *p, global const float *g) {
    int i = (int)get_global_id(0);
    if (i < count) {
        p[i] -= rate * (g[i] + decay * p[i]);
    }
}

kernel void momentum(int count, float rate, float momentum_rate, float decay, global float *p,
                     global const float *g, global float *v) {
    int i = (int)get_global_id(0);
    if (i >= count) {
        return;
    }
    v[i] = momentum_rate * v[i] + g[i] + decay * p[i];
    p[i] -= rate * v[i];
}

/* correction1 and correction2 are 1 / (1 - beta^step), computed by the host: they compensate for
 * both moments being zero at first. */
kernel void adam(int count, float rate, float beta1, float beta2, float epsilon, float correction1,
                 float correction2, global float *p, global const float *g, global float *m,
                 global float *v) {
    int i = (int)get_global_id(0);
    if (i >= count) {
        return;
    }
    m[i] = beta1 * m[i] + (1.0f - beta1) * g[i];
    v[i] = beta2 * v[i] + (1.0f - beta2) * g[i] * g[i];
    p[i] -= rate * (m[i] * correction1) / (sqrt(v[i] * correction2) + epsilon);
}
