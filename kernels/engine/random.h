/* random.h - random numbers by counting: value number `index` of stream `stream` under `seed`.
 *
 * The one rule: nothing is remembered. The same three numbers give the same value in any order, on
 * any thread and on any phone, so initial values, dropout masks and data sets need no generator
 * that is carried around. The numbers are hashed: each bit of the three turns about half of the
 * 64 bits that come out. */
#ifndef FARMHAND_RANDOM_H
#define FARMHAND_RANDOM_H

#include <math.h>
#include <stdint.h>

/* Streams in use, so that two users of one seed never draw the same numbers. A tensor or an
 * operation adds its own number to the base of its family. */
enum {
    RANDOM_INITIAL = 1 << 24, /* + number of the tensor */
    RANDOM_DROPOUT = 2 << 24, /* + number of the operation */
    RANDOM_DATA = 3 << 24     /* + purpose, as data.c lists them */
};

static inline uint64_t random_stir(uint64_t x) {
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ (x >> 32);
}

/* What seed and stream have in common for all indices; for loops over many values. */
static inline uint64_t random_key(uint64_t seed, uint64_t stream) {
    return random_stir(random_stir(seed + UINT64_C(0x9e3779b97f4a7c15)) + stream);
}

static inline uint64_t random_at(uint64_t key, uint64_t index) {
    return random_stir(key + index * UINT64_C(0x9e3779b97f4a7c15));
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

/* Of mean 0 and deviation 1: one of the two halves of Box and Muller's pair. */
static inline float random_normal(uint64_t key, uint64_t index) {
    uint64_t bits = random_at(key, index >> 1);
    float radius = sqrtf(-2.0f * logf(((float)(bits >> 40) + 0.5f) * 0x1p-24f));
    float turn = (float)(bits & 0xffffff) * (6.2831853f * 0x1p-24f);
    return radius * (index & 1 ? sinf(turn) : cosf(turn));
}

#endif
