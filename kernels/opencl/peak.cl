/* peak.cl - the two roofs over every kernel: how fast the device can multiply and add when nothing
 * has to be fetched, and how fast it can fetch when nothing has to be computed. */

/* Twelve independent sums of eight, so that no product waits for the one before it. */
kernel void multiply_add(int rounds, float seed, global float *restrict out) {
    float8 a = seed, b = seed + 1.0f, c = seed + 2.0f, d = seed + 3.0f, e = seed + 4.0f,
           f = seed + 5.0f, g = seed + 6.0f, h = seed + 7.0f, i = seed + 8.0f, j = seed + 9.0f,
           k = seed + 10.0f, l = seed + 11.0f;
    float8 by = 0.999f, plus = 0.001f;
    for (int round = 0; round < rounds; ++round) {
        a = a * by + plus, b = b * by + plus, c = c * by + plus, d = d * by + plus;
        e = e * by + plus, f = f * by + plus, g = g * by + plus, h = h * by + plus;
        i = i * by + plus, j = j * by + plus, k = k * by + plus, l = l * by + plus;
    }
    float8 sum = a + b + c + d + e + f + g + h + i + j + k + l;
    out[get_global_id(0)] =
        sum.s0 + sum.s1 + sum.s2 + sum.s3 + sum.s4 + sum.s5 + sum.s6 + sum.s7;
}

/* Each item adds up its own stretch of memory and writes one number. */
kernel void fetch(int eights, global const float8 *restrict from, global float *restrict out) {
    global const float8 *restrict mine = from + (size_t)get_global_id(0) * eights;
    float8 a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
    for (int i = 0; i + 4 <= eights; i += 4) {
        a += mine[i];
        b += mine[i + 1];
        c += mine[i + 2];
        d += mine[i + 3];
    }
    float8 sum = a + b + c + d;
    out[get_global_id(0)] =
        sum.s0 + sum.s1 + sum.s2 + sum.s3 + sum.s4 + sum.s5 + sum.s6 + sum.s7;
}
