/* attention.cl - scale and mask of attention scores (samples, heads, steps, steps).
 *
 * The products are variants of sgemm_common.cl, one per sample and head. One work item per score. A
 * causal mask hides the keys of later time steps. */

/* In place: scaled where a key is visible, else so low that softmax makes it 0. */
kernel void mask_scores(int count, int steps, int causal, float scale, global float *scores) {
    int i = (int)get_global_id(0);
    if (i < count) {
        bool hidden = causal && i % steps > i / steps % steps;
        scores[i] = hidden ? -1e30f : scores[i] * scale;
    }
}

kernel void mask_scores_gradient(int count, int steps, int causal, float scale,
                                 global const float *dscores, global float *scaled) {
    int i = (int)get_global_id(0);
    if (i < count) {
        bool hidden = causal && i % steps > i / steps % steps;
        scaled[i] = hidden ? 0.0f : dscores[i] * scale;
    }
}
