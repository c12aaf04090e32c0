/* vector.h - vectors of eight floats, and the functions of them that training needs.
 *
 * One source for AVX2 (one register) and NEON (two), written in the compiler's vector extensions
 * only. NaN passes through every function, so that a broken training step shows in its loss. The
 * largest error of each function is stated in units of the last place (ulp).
 *
 * Sums of a million values keep their rounding error small because each lane sums an eighth. */
#ifndef FARMHAND_VECTOR_H
#define FARMHAND_VECTOR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 8 };

typedef float v8 __attribute__((vector_size(32), may_alias));
typedef int32_t v8i __attribute__((vector_size(32), may_alias));
/* The same in memory, at any address of a float. */
typedef float v8_any __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t v8i_any __attribute__((vector_size(32), aligned(4), may_alias));

/* Half of that. */
typedef float v4 __attribute__((vector_size(16), may_alias));
typedef float v4_any __attribute__((vector_size(16), aligned(4), may_alias));

static inline v8 load8(const float *from) { return *(const v8_any *)from; }
static inline void store8(float *to, v8 x) { *(v8_any *)to = x; }
static inline v8i load8i(const int32_t *from) { return *(const v8i_any *)from; }
static inline void store8i(int32_t *to, v8i x) { *(v8i_any *)to = x; }

static inline v8 splat8(float x) { return (v8){x, x, x, x, x, x, x, x}; }
static inline v8i splat8i(int32_t x) { return (v8i){x, x, x, x, x, x, x, x}; }

#define ALWAYS_INLINE static inline __attribute__((always_inline))
/* For the ends of rows: used everywhere, executed seldom, and so never inlined. */
#define ROW_END __attribute__((noinline, unused)) static

/* Loads the last values of a row, fewer than eight; the other lanes are set to `rest`. */
ROW_END v8 load8_part(const float *from, int64_t count, float rest) {
    v8 x = splat8(rest);
    for (int64_t lane = 0; lane < count; lane++) {
        x[lane] = from[lane];
    }
    return x;
}

ROW_END void store8_part(float *to, v8 x, int64_t count) {
    for (int64_t lane = 0; lane < count; lane++) {
        to[lane] = x[lane];
    }
}

/* Loads min(count, 8) values; the other lanes are 0. */
static inline v8 load8_up_to(const float *from, int64_t count) {
    return count >= LANES ? load8(from) : load8_part(from, count, 0.0f);
}

static inline void store8_up_to(float *to, v8 x, int64_t count) {
    if (count >= LANES) {
        store8(to, x);
    } else {
        store8_part(to, x, count);
    }
}

/* The mask of those of a row's last eight values that come after its last full vector: a row of
 * eight or more values ends with one full load that overlaps the one before. */
static inline v8i tail_mask8(int64_t count) {
    static const int32_t window[2 * LANES] = {0,  0,  0,  0,  0,  0,  0,  0,
                                              -1, -1, -1, -1, -1, -1, -1, -1};
    return load8i(window + count % LANES);
}

static inline v8 mask8(v8i mask, v8 x) { return (v8)(mask & (v8i)x); }

/* mask ? a : b per lane; mask is the result of a comparison. */
static inline v8 select8(v8i mask, v8 a, v8 b) { return (v8)((mask & (v8i)a) | (~mask & (v8i)b)); }

static inline v8 abs8(v8 x) { return (v8)((v8i)x & splat8i(0x7fffffff)); }
/* The magnitude of the first, the sign of the second. */
static inline v8 copysign8(v8 x, v8 sign) {
    return (v8)((v8i)x | ((v8i)sign & splat8i(INT32_MIN)));
}
/* Maximum and minimum; a NaN in x stays. */
static inline v8 max8(v8 x, v8 floor) { return select8(x < floor, floor, x); }
static inline v8 min8(v8 x, v8 ceiling) { return select8(x > ceiling, ceiling, x); }

static inline v8 sqrt8(v8 x) {
#if defined(__has_builtin) && __has_builtin(__builtin_elementwise_sqrt)
    return __builtin_elementwise_sqrt(x);
#else
    for (int lane = 0; lane < LANES; lane++) {
        x[lane] = __builtin_sqrtf(x[lane]);
    }
    return x;
#endif
}

static inline float hsum8(v8 x) {
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

static inline float max_lane8(v8 x) {
    float max = x[0];
    for (int lane = 1; lane < LANES; lane++) {
        max = x[lane] > max || x[lane] != x[lane] ? x[lane] : max;
    }
    return max;
}

/* e^x within 1.5 ulp; 0 and infinity where the answer leaves the range. */
static inline v8 exp8(v8 x) {
    const v8 round = splat8(0x1.8p23f);
    x = min8(max8(x, splat8(-104.0f)), splat8(89.0f));
    v8 shifted = x * 1.44269504f + round;
    v8 n = shifted - round;
    v8 r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    v8 p = splat8(0.0013814841f);
    p = p * r + 0.008368703f;
    p = p * r + 0.04166838f;
    p = p * r + 0.16666521f;
    p = p * r + 0.49999994f;
    p = r * r * p + r + 1.0f;
    /* 2^n as a product of two powers, so that neither exponent overflows. */
    v8i exponent = (v8i)shifted - (v8i)round;
    v8i half = exponent >> 1;
    v8 first = (v8)((half + 127) << 23), second = (v8)((exponent - half + 127) << 23);
    return p * first * second;
}

/* The natural logarithm within 2.5 ulp for normal x > 0; -infinity for 0, NaN below. */
static inline v8 log8(v8 x) {
    v8i bits = (v8i)x;
    v8i exponent = (bits - 0x3f3504f3) >> 23; /* so that the mantissa is around 1 */
    v8 m = (v8)(bits - (exponent << 23));
    v8 s = (m - 1.0f) / (m + 1.0f);
    v8 z = s * s;
    v8 p = splat8(0.23582095f);
    p = p * z + 0.28537312f;
    p = p * z + 0.40000334f;
    p = p * z + 0.6666666f;
    v8 e = __builtin_convertvector(exponent, v8);
    v8 y = s * z * p - e * 2.12194440e-4f + 2.0f * s + e * 0.693359375f;
    y = select8(x == 0.0f, splat8(-__builtin_inff()), y);
    y = select8(x < 0.0f, splat8(__builtin_nanf("")), y);
    return select8((x != x) | (x == __builtin_inff()), x, y);
}

/* Within 2.5 ulp. */
static inline v8 tanh8(v8 x) {
    v8 size = abs8(x), z = x * x;
    v8 p = splat8(-0.005717041f);
    p = p * z + 0.020650584f;
    p = p * z - 0.053743497f;
    p = p * z + 0.13331491f;
    p = p * z - 0.33333284f;
    v8 near = x * z * p + x;
    v8 far = copysign8(1.0f - 2.0f / (exp8(2.0f * size) + 1.0f), x);
    return select8(size > 0.625f, far, near);
}

/* Within 2.5 ulp. */
static inline v8 sigmoid8(v8 x) { return 1.0f / (1.0f + exp8(-x)); }

/* The error function within 3 ulp. */
static inline v8 erf8(v8 x) {
    v8 size = abs8(x), z = x * x;
    v8 p = splat8(-9.641517e-06f);
    p = p * z + 0.00011256948f;
    p = p * z - 0.0008482829f;
    p = p * z + 0.0052209455f;
    p = p * z - 0.0268654f;
    p = p * z + 0.11283782f;
    p = p * z - 0.37612638f;
    p = p * z + 1.1283792f;
    v8 t = 1.0f / (1.0f + 0.5f * size);
    v8 q = splat8(-0.22933502f);
    q = q * t + 0.6324169f;
    q = q * t - 0.059520263f;
    q = q * t + 0.39394927f;
    q = q * t + 0.26052138f;
    q = q * t + 0.0017283736f;
    v8 far = copysign8(1.0f - exp8(-z) * q, x);
    return select8(size > 1.0f, far, x * p);
}

#endif
