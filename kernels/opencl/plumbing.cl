/* plumbing.cl - what stands between layers: sums, biases, parts of a whole, and values let go.
 *
 * One work item a value, and nothing but moving: these kernels wait for memory.
 */

kernel void add_two(int count, global const float *x, global const float *z, global float *y) {
    int i = (int)get_global_id(0);
    if (i < count)
        y[i] = x[i] + z[i];
}

/* One of many that are added up: the first is copied, each other one is added to it. */
kernel void add_one(int count, int first, global const float *x, global float *y) {
    int i = (int)get_global_id(0);
    if (i < count)
        y[i] = first ? x[i] : y[i] + x[i];
}

/* A bias for every channel, over rows (inner = 1) or images (inner = pixels of a channel). */
kernel void add_bias(int count, int channels, int inner, global const float *bias,
                     global float *y) {
    int i = (int)get_global_id(0);
    if (i < count)
        y[i] += bias[i / inner % channels];
}

/* A whole is made of parts that lie side by side: `length` values of each row of `whole` are this
 * part's, from `offset` on. To its place in the whole, and from there. */
kernel void to_part(int count, int length, int whole, int offset, global const float *part,
                    global float *all) {
    int i = (int)get_global_id(0);
    if (i < count)
        all[(size_t)(i / length) * whole + offset + i % length] = part[i];
}

kernel void from_part(int count, int length, int whole, int offset, global const float *all,
                      global float *part) {
    int i = (int)get_global_id(0);
    if (i < count)
        part[i] = all[(size_t)(i / length) * whole + offset + i % length];
}

/* Every bit of what goes in turns about half of those that come out (kernels/engine/random.h). */
ulong stirred(ulong x) {
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93UL;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93UL;
    return x ^ (x >> 32);
}

/* Lets go of `dropped` in 65536 values; the others grow. Random numbers come by counting, four
 * values to a number, so that every backend drops the same; the mask is kept for the way back. */
kernel void dropout(int count, float grown, uint dropped, ulong key, global const float *x,
                    global float *y, global uchar *mask) {
    int i = (int)get_global_id(0);
    if (i >= count)
        return;
    ulong bits = stirred(key + (ulong)(i / 4) * 0x9e3779b97f4a7c15UL) >> (16 * (i % 4));
    uchar stays = (bits & 0xffff) >= dropped;
    mask[i] = stays;
    y[i] = stays ? x[i] * grown : 0.0f;
}
