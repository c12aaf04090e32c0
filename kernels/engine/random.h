/* random.h - a counter-based random number generator: value number `index` of stream `stream` under
 * `seed` is a hash of the three.
 *
 * The one rule: there is no generator state. The same three numbers give the same value in any
 * order, on any thread and on any phone, so initial values, dropout masks and data sets need no
 * generator that is passed around. Flipping any bit of the three flips about half of the 64 result
 * bits. */
#ifndef FARMHAND_RANDOM_H
#define FARMHAND_RANDOM_H

#include <math.h>
#include <stdint.h>

/* Streams in use, so that two users of one seed never draw the same numbers. A tensor or an
 * operation adds its own number to the base of its family. */
enum {
    RANDOM_INITIAL = 1 << 24, /* + number of the tensor */
    RANDOM_DROPOUT = 2 << 24, /* + number of the operation */
    RANDOM_DATA = 3 << 24     /* + purpose, as listed in generators.c */
};

static inline uint64_t random_mix(uint64_t x) {
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ (x >> 32);
}

/* The hash of seed and stream; computed once for a loop over many indices. */
static inline uint64_t random_key(uint64_t seed, uint64_t stream) {
    return random_mix(random_mix(seed + UINT64_C(0x9e3779b97f4a7c15)) + stream);
}

static inline uint64_t random_at(uint64_t key, uint64_t index) {
    return random_mix(key + index * UINT64_C(0x9e3779b97f4a7c15));
}

static inline uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
    return random_at(random_key(seed, stream), index);
}

/* In [0, 1), in steps of 2^-24. */
static inline float random_unit(uint64_t bits) { return (float)(bits >> 40) * 0x1p-24f; }

/* In [-bound, bound). */
static inline float random_uniform(uint64_t key, uint64_t index, float bound) {
    return (2.0f * random_unit(random_at(key, index)) - 1.0f) * bound;
}

/* Mean 0, standard deviation 1: one value of a Box-Muller pair. */
static inline float random_normal(uint64_t key, uint64_t index) {
    uint64_t bits = random_at(key, index >> 1);
    float radius = sqrtf(-2.0f * logf(((float)(bits >> 40) + 0.5f) * 0x1p-24f));
    float angle = (float)(bits & 0xffffff) * (6.2831853f * 0x1p-24f);
    return radius * (index & 1 ? sinf(angle) : cosf(angle));
}

#endif
