/* updates.cl - how parameters follow their gradients. One work item a parameter, all in place. */

kernel void sgd(int count, float rate, float decay, global float *p, global const float *g) {
    int i = (int)get_global_id(0);
    if (i < count)
        p[i] -= rate * (g[i] + decay * p[i]);
}

kernel void momentum(int count, float rate, float kept, float decay, global float *p,
                     global const float *g, global float *v) {
    int i = (int)get_global_id(0);
    if (i >= count)
        return;
    v[i] = kept * v[i] + g[i] + decay * p[i];
    p[i] -= rate * v[i];
}

/* `grown1` and `grown2` undo that both moments begin at zero: 1 / (1 - beta^step), by the host. */
kernel void adam(int count, float rate, float beta1, float beta2, float epsilon, float grown1,
                 float grown2, global float *p, global const float *g, global float *m,
                 global float *v) {
    int i = (int)get_global_id(0);
    if (i >= count)
        return;
    m[i] = beta1 * m[i] + (1.0f - beta1) * g[i];
    v[i] = beta2 * v[i] + (1.0f - beta2) * g[i] * g[i];
    p[i] -= rate * (m[i] * grown1) / (sqrt(v[i] * grown2) + epsilon);
}
