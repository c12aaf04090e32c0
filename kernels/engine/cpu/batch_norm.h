/* batch_norm.h - what batch normalisation forward and backward share: a channel in slices.
 *
 * These operations wait for memory, so passes over it are what counts. A channel is cut into slices
 * that fit the nearest cache; what is to be known of a slice is found while it is there, and slices
 * are put together in double precision. They depend on the shape alone, so results do not depend
 * on threads.
 *
 * Where there are enough channels, a thread keeps a channel for itself and is done with it while it
 * is still in a cache; where there are few, all threads first measure slices, then write them. */
#ifndef FARMHAND_BATCH_NORM_H
#define FARMHAND_BATCH_NORM_H

#include "check.h"
#include "ops.h"
#include "spread.h"
#include "vector.h"

enum { SLICE_VALUES = 8192 };

/* What follows a batch norm in the same pass. */
enum after { NOTHING, RELU, RELU6 };

struct batch_norm {
    const struct op *op;
    const float *x, *dy, *scale, *shift, *mean, *rstd;
    float *y; /* or dx */
    float *new_mean, *new_rstd, *dscale, *dshift;
    int64_t samples, channels, pixels, values, slices; /* values: of one channel */
    double *slice_sums;                                /* three a slice */
    enum after after;
};

/* What the shape of x tells; the operation adds the rest. */
struct batch_norm batch_norm_of(const struct op *op);

/* Room for what is known of slices; none where threads have whole channels. */
size_t batch_norm_workspace(const struct op *op, int threads);

/* The first so many operands and the result number `whole` (-1: none) have the size of x; all
 * others have one value a channel. */
const char *check_channels(const struct op *op, int like_x, int whole);

/* Whether threads can have channels for themselves and still get about the same. */
static inline bool channels_suffice(const struct batch_norm *norm, int threads) {
    return norm->channels % threads == 0 || norm->channels >= 8 * threads;
}

/* --- slices -------------------------------------------------------------------------------- */

/* A piece of a slice that lies without gaps. */
struct piece {
    int64_t at, count, left;
};

struct piece first_piece(const struct batch_norm *norm, int64_t channel, int64_t slice);
bool next_piece(const struct batch_norm *norm, struct piece *piece);

/* --- lines --------------------------------------------------------------------------------- */

/* What normalising does to a value: times slope, plus offset. The lanes are pixels of one channel,
 * or, where channels have one pixel only, eight channels. */
struct line {
    v8 slope, offset;
};

static inline struct line line_of(float scale, float shift, float mean, float rstd) {
    float slope = scale * rstd;
    return (struct line){all8(slope), all8(shift - mean * slope)};
}

/* The line of a channel, and of eight channels of one pixel each. */
struct line line_at(const struct batch_norm *norm, int64_t channel);
struct line lines_at(const struct batch_norm *norm, int64_t channel, int64_t lanes);

#endif
