/* batch_norm.h - what forward and backward batch normalisation share: a channel in slices.
 *
 * These operations are bound by memory bandwidth, so the number of passes over memory decides their
 * time. A channel is divided into slices that fit the L1 cache; the sums of a slice are computed
 * while it is there, and combined in double precision. Slices depend on the shape only, so results
 * do not depend on the number of threads.
 *
 * With enough channels, a thread processes a whole channel while it is still in a cache; with few
 * channels, all threads first compute the sums of slices, then write the slices. */
#ifndef FARMHAND_BATCH_NORM_H
#define FARMHAND_BATCH_NORM_H

#include "ops.h"
#include "parallel_for.h"
#include "vector.h"

enum { SLICE_VALUES = 8192 };

/* The activation that is fused with the normalisation. */
enum activation { NO_ACTIVATION, RELU, RELU6 };

struct batch_norm {
    const struct op *op;
    const float *x, *dy, *scale, *shift, *mean, *rstd;
    float *y; /* or dx */
    float *new_mean, *new_rstd, *dscale, *dshift;
    int64_t samples, channels, pixels, values, slices; /* values: per channel */
    double *slice_sums;                                /* three per slice */
    enum activation activation;
};

/* Fills in what follows from the shape of x. */
struct batch_norm batch_norm_of(const struct op *op);

/* Bytes for the sums of slices; 0 where threads process whole channels. */
size_t batch_norm_workspace(const struct op *op, int threads);

/* Whether threads can split the channels about evenly. */
static inline bool channels_are_enough(const struct batch_norm *norm, int threads) {
    return norm->channels % threads == 0 || norm->channels >= 8 * threads;
}

/* ---- slices ---- */

/* A contiguous piece of a slice. */
struct piece {
    int64_t at, count, left;
};

struct piece first_piece(const struct batch_norm *norm, int64_t channel, int64_t slice);
bool next_piece(const struct batch_norm *norm, struct piece *piece);

/* ---- affine maps ---- */

/* Normalisation as y = x * factor + offset. Lanes are pixels of one channel or, where channels have
 * one pixel only, eight channels. */
struct affine {
    v8 factor, offset;
};

static inline struct affine affine_of(float scale, float shift, float mean, float rstd) {
    float factor = scale * rstd;
    return (struct affine){splat8(factor), splat8(shift - mean * factor)};
}

/* The map of one channel, and of eight channels of one pixel each. */
struct affine affine_of_channel(const struct batch_norm *norm, int64_t channel);
struct affine affine_of_channels(const struct batch_norm *norm, int64_t channel, int64_t lanes);

#endif
