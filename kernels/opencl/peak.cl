/* peak.cl - the two limits of a roofline: multiply-adds per second without memory access, and bytes
 * per second without computation. */

/* Twelve independent accumulators of eight lanes, so that no multiply-add waits for the one
 * before. */
kernel void multiply_add(int rounds, float seed, global float *restrict out) {
    float8 a = seed, b = seed + 1.0f, c = seed + 2.0f, d = seed + 3.0f, e = seed + 4.0f,
           f = seed + 5.0f, g = seed + 6.0f, h = seed + 7.0f, i = seed + 8.0f, j = seed + 9.0f,
           k = seed + 10.0f, l = seed + 11.0f;
    float8 factor = 0.999f, term = 0.001f;
    for (int round = 0; round < rounds; ++round) {
        a = a * factor + term, b = b * factor + term, c = c * factor + term, d = d * factor + term;
        e = e * factor + term, f = f * factor + term, g = g * factor + term, h = h * factor + term;
        i = i * factor + term, j = j * factor + term, k = k * factor + term, l = l * factor + term;
    }
    float8 sum = a + b + c + d + e + f + g + h + i + j + k + l;
    out[get_global_id(0)] = sum.s0 + sum.s1 + sum.s2 + sum.s3 + sum.s4 + sum.s5 + sum.s6 + sum.s7;
}

/* Each work item sums a range of memory and writes one number. */
kernel void read_memory(int vectors, global const float8 *restrict from,
                        global float *restrict out) {
    global const float8 *restrict at = from + (size_t)get_global_id(0) * vectors;
    float8 a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
    for (int i = 0; i + 4 <= vectors; i += 4) {
        a += at[i];
        b += at[i + 1];
        c += at[i + 2];
        d += at[i + 3];
    }
    float8 sum = a + b + c + d;
    out[get_global_id(0)] = sum.s0 + sum.s1 + sum.s2 + sum.s3 + sum.s4 + sum.s5 + sum.s6 + sum.s7;
}
