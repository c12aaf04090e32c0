/* window.h - implicit im2col: a band of an image, packed so that every tap of a kernel reads memory
 * in order. One copy of the band replaces im2col's copy per tap.
 *
 * Rows are copied with their padding. Where the stride is greater than one, pixels that one tap of
 * the kernel reads are put side by side (a "phase": the pixels of one residue modulo the stride).
 * Then output pixel (i, j) of a band has the number p = i * pitch + j, and tap (kh, kw) of channel
 * c reads its input at tap_offset(c, kh, kw) + p: one offset for the tap, one for the pixel. Pixels
 * with j beyond the output's width have numbers too; they are computed and dropped.
 *
 * Left and right padding are both zeros, so the right padding of a row and the left padding of the
 * next row overlap, which shortens the pitch. */
#ifndef FARMHAND_WINDOW_H
#define FARMHAND_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../int_math.h"

enum { WINDOW_SLACK = 32 }; /* floats after a band that may be read; they are zero */

/* Windows of a convolution or a pooling: an image (height, width), an output (rows, columns), a
 * kernel (kh, kw), strides (sh, sw), and the padding before the image (top, left), which may be
 * negative. */
struct window {
    int64_t height, width, rows, columns;
    int64_t kh, kw, sh, sw, top, left;
};

/* The packed input of `rows` output rows. */
struct band {
    int64_t rows, pitch, plane, phases_down, phases_across;
    int64_t input_rows; /* per phase */
    int64_t floats;     /* of all channels, with slack */
};

static inline struct band band_of(const struct window *window, int64_t rows, int64_t channels) {
    struct band band = {.rows = rows};
    band.phases_down = min_i64(window->sh, window->kh);
    band.phases_across = min_i64(window->sw, window->kw);
    band.input_rows = rows + (window->kh - 1) / window->sh;
    band.pitch = window->columns + (window->kw - 1) / window->sw;
    if (window->sw == 1) {
        int64_t right = window->columns + window->kw - 1 - window->width - window->left;
        int64_t overlap = min_i64(min_i64(right, window->left), window->kw - 1);
        if (overlap > 0) {
            band.pitch -= overlap;
        }
    }
    /* An odd number of cache lines, so that channels do not map to the same cache set. */
    band.plane = (div_up(band.input_rows * band.pitch, CACHE_LINE_FLOATS) | 1) * CACHE_LINE_FLOATS;
    band.floats =
        band.plane * band.phases_down * band.phases_across * channels + WINDOW_SLACK + band.pitch;
    return band;
}

/* Where tap (kh, kw) of channel c reads its input for pixel 0. */
static inline int64_t tap_offset(const struct window *window, const struct band *band, int64_t c,
                                 int64_t kh, int64_t kw) {
    int64_t down = c * band->phases_down + kh % window->sh;
    int64_t phase = down * band->phases_across + kw % window->sw;
    return phase * band->plane + kh / window->sh * band->pitch + kw / window->sw;
}

/* Writes the offsets of all taps of `channels` channels, in the order of the weights. */
static inline void write_tap_offsets(const struct window *window, const struct band *band,
                                     int64_t channels, int32_t *offset) {
    for (int64_t c = 0; c < channels; c++) {
        for (int64_t kh = 0; kh < window->kh; kh++) {
            for (int64_t kw = 0; kw < window->kw; kw++) {
                *offset++ = (int32_t)tap_offset(window, band, c, kh, kw);
            }
        }
    }
}

/* Packs the band whose first output row is `first`; x is the image of the first channel. */
void pack_band(const struct window *window, const struct band *band, int64_t first,
               int64_t channels, const float *x, float *to);

/* Packs one channel, from output row 0 on, into a band that was zeroed or packed before. */
void repack_band(const struct window *window, const struct band *band, const float *x, float *to);

#endif
