/* optimizers.cl - parameter updates in place, one work item per parameter; the norm of
 * gradients. */

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

/* Adam on scale * g, where total is the sum of squares of all g: the norm is limited to clip. */
kernel void adamw(int count, float rate, float beta1, float beta2, float epsilon, float correction1,
                  float correction2, float decay, float clip, float scale, global float *p,
                  global const float *g, global float *m, global float *v,
                  global const float *total) {
    int i = (int)get_global_id(0);
    if (i >= count) {
        return;
    }
    float limited = g[i] * scale * fmin(1.0f, clip / (scale * sqrt(total[0]) + 1e-6f));
    m[i] = beta1 * m[i] + (1.0f - beta1) * limited;
    v[i] = beta2 * v[i] + (1.0f - beta2) * limited * limited;
    p[i] -= rate * decay * p[i];
    p[i] -= rate * (m[i] * correction1) / (sqrt(v[i] * correction2) + epsilon);
}

/* Each group sums a part of the squares: its items in turn, then in a tree. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
squared_norm_parts(int count, global const float *g, global float *parts) {
    local float part[GROUP];
    int item = (int)get_local_id(0);
    float sum = 0.0f;
    for (size_t i = get_global_id(0); i < (size_t)count; i += get_global_size(0)) {
        sum += g[i] * g[i];
    }
    sum = group_sum(sum, part);
    if (item == 0) {
        parts[get_group_id(0)] = sum;
    }
}

/* One work item adds the parts, and what is there already if `adds`. */
kernel void squared_norm_total(int count, int adds, global const float *parts,
                               global const float *before, global float *total) {
    float sum = adds ? before[0] : 0.0f;
    for (int i = 0; i < count; ++i) {
        sum += parts[i];
    }
    total[0] = sum;
}
