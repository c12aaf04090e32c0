/* window.h - a band of an image laid out so that every window reads memory in order.
 *
 * Rows are copied with their padding, and where the stride is greater than one the pixels that one
 * tap of the kernel meets are put side by side (a "phase"). Then output pixel (i, j) of a band is
 * the number p = i * pitch + j, and the input that tap (kh, kw) of channel c meets there is at
 * tap_offset(c, kh, kw) + p: one number for the tap, one for the pixel. Pixels with j beyond the
 * output's width are numbered too; they are computed and dropped.
 *
 * Where the padding on the left and on the right are both zeros, a row lends its first columns to
 * the row before, which makes the pitch that much shorter. */
#ifndef FARMHAND_WINDOW_H
#define FARMHAND_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WINDOW_SLACK = 32 }; /* floats behind a band that may be read; they are zero */

/* How windows of kh x kw, sh and sw apart, lie over images of (height, width); top and left may be
 * negative. rows and columns: of windows, that is, of the output. */
struct window {
    int64_t height, width, rows, columns;
    int64_t kh, kw, sh, sw, top, left;
};

/* A band of `rows` output rows of `channels` channels. */
struct band {
    int64_t rows, pitch, plane, phases_down, phases_across;
    int64_t input_rows; /* of one phase */
    int64_t floats;     /* all channels, with slack */
};

static inline struct band band_of(const struct window *window, int64_t rows, int64_t channels) {
    struct band band = {.rows = rows};
    band.phases_down = window->sh < window->kh ? window->sh : window->kh;
    band.phases_across = window->sw < window->kw ? window->sw : window->kw;
    band.input_rows = rows + (window->kh - 1) / window->sh;
    band.pitch = window->columns + (window->kw - 1) / window->sw;
    if (window->sw == 1) {
        int64_t right = window->columns + window->kw - 1 - window->width - window->left;
        int64_t lent = right < window->left ? right : window->left;
        lent = lent < window->kw - 1 ? lent : window->kw - 1;
        if (lent > 0)
            band.pitch -= lent;
    }
    /* An odd number of cache lines, so that channels do not meet in the same cache set. */
    band.plane = ((band.input_rows * band.pitch + 15) / 16 | 1) * 16;
    band.floats = band.plane * band.phases_down * band.phases_across * channels + WINDOW_SLACK +
                  band.pitch;
    return band;
}

static inline int64_t tap_offset(const struct window *window, const struct band *band, int64_t c,
                                 int64_t kh, int64_t kw) {
    int64_t down = c * band->phases_down + kh % window->sh;
    int64_t phase = down * band->phases_across + kw % window->sw;
    return phase * band->plane + kh / window->sh * band->pitch + kw / window->sw;
}

/* Copies the band whose first output row is `first`; x is the first channel's image. */
void band_copy(const struct window *window, const struct band *band, int64_t first,
               int64_t channels, const float *x, float *to);

/* One channel, from the first row on, into a band that was cleared or holds an image already. */
void band_refill(const struct window *window, const struct band *band, const float *x, float *to);

#endif
