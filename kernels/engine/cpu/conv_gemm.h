/* conv_gemm.h - convolution as a matrix product over implicit im2col: output (out_channels, pixels)
 * = weights (out_channels, depth) * windows (depth, pixels), per image and group, where depth =
 * in_channels * kh * kw.
 *
 * A forward convolution is one such product; an input gradient is one for each phase of the stride.
 * The caller fills in the problem, calls conv_gemm_plan() and conv_gemm_bind_workspace(), packs the
 * weights, and calls conv_gemm_run(). */
#ifndef FARMHAND_CONV_GEMM_H
#define FARMHAND_CONV_GEMM_H

#include "gemm.h"
#include "window.h"

struct conv_gemm {
    /* The problem, filled in by the caller. */
    struct window window;
    int64_t images, groups, in_channels, out_channels; /* channels: per group */
    const float *input;                                /* (images, groups * in_channels, H, W) */
    float *output;                                     /* the first pixel of the first plane */
    int64_t output_plane, output_row, output_column;   /* strides */
    const float *bias;                                 /* NULL: none */
    /* Set by conv_gemm_plan(). */
    struct band band;
    int64_t depth;            /* in_channels * kh * kw */
    struct row_panels panels; /* of the out_channels of one group */
    int64_t bands;            /* per image */
    int64_t weight_splits;    /* how many workers share the row panels of one band */
    bool in_place;            /* pointwise: the input is read where it is */
    bool packs_windows;       /* NR pixels of every window are packed into a column panel */
    bool segments_by_row;     /* segments begin with rows; else they follow one another */
    int64_t segments_per_row;
    int64_t scratch_floats; /* per worker */
    /* Set by conv_gemm_bind_workspace(). */
    float *packed_weights; /* row panels, group by group */
    int32_t *tap_offsets;  /* NULL: tap k is at k * band.plane (in_place) */
    float *scratch;        /* of all workers */
};

/* Decides how the problem is divided; the same for the workspace and for the run. */
void conv_gemm_plan(struct conv_gemm *job, int threads);
size_t conv_gemm_workspace(const struct conv_gemm *job, int threads);
/* Divides the workspace and fills in the tap offsets. */
void conv_gemm_bind_workspace(struct conv_gemm *job, void *workspace);
void conv_gemm_run(struct conv_gemm *job, struct thread_pool *pool);

#endif
