/* sweep.h - target(rows, pixels) = weights(rows, depth) windows(depth, pixels), of many images.
 *
 * A convolution is one sweep; its input gradient is one for each phase of the stride. Whoever wants
 * one fills in what it is about, lets it be planned, packs the weights, and runs it. */
#ifndef FARMHAND_SWEEP_H
#define FARMHAND_SWEEP_H

#include "gemm.h"
#include "window.h"

struct sweep {
    struct window window;
    struct band band;
    int64_t images, groups, channels, targets; /* channels, targets: of one group */
    int64_t depth;                             /* channels x taps */
    struct slivers cut;                        /* of one group's targets */
    const float *source;                       /* (images, groups x channels, height, width) */
    float *target;                             /* the first pixel of the first plane */
    int64_t target_plane, row_step, column_step;
    const float *bias;
    float *packed;    /* slivers of weights, group by group */
    int32_t *offsets; /* of the taps; NULL: tap k is at k * band.plane, and nothing is copied */
    float *scratch;   /* of all workers */
    int64_t scratch_floats, bands, cuts;
    bool in_place; /* windows are single pixels: nothing is copied */
    bool dense;    /* windows are packed, sixteen pixels at a time; otherwise read where they lie */
    bool by_rows;  /* segments begin with rows; otherwise they follow one another */
    int64_t segments_a_row;
};

/* Settles how a sweep is cut; the same for workspace() and for run(). */
void sweep_plan(struct sweep *sweep, int threads);
size_t sweep_workspace(const struct sweep *sweep, int threads);
/* Lays the workspace out and writes the offsets of the taps down. */
void sweep_settle(struct sweep *sweep, void *workspace);
void sweep_run(struct sweep *sweep, struct pool *pool);

#endif
