/* window.c - copies bands of images; see window.h. */
#include "window.h"

#include <string.h>

static int64_t clamp(int64_t x, int64_t low, int64_t high) {
    return x < low ? low : x > high ? high : x;
}

/* One row: to[j] = x[j * step + shift] where that is inside the image, 0 elsewhere. */
static void copy_row(const float *x, int64_t width, int64_t step, int64_t shift, int64_t count,
                     float *to) {
    int64_t from = shift < 0 ? clamp((-shift + step - 1) / step, 0, count) : 0;
    int64_t until = shift < width ? clamp((width - shift + step - 1) / step, from, count) : from;
    for (int64_t j = 0; j < from; j++)
        to[j] = 0.0f;
    if (step == 1) {
        memcpy(to + from, x + from + shift, (size_t)(until - from) * sizeof *to);
    } else if (step == 2) {
        for (int64_t j = from; j < until; j++)
            to[j] = x[2 * j + shift];
    } else {
        for (int64_t j = from; j < until; j++)
            to[j] = x[j * step + shift];
    }
    for (int64_t j = until; j < count; j++)
        to[j] = 0.0f;
}

static void copy_phase(const struct window *window, const struct band *band, int64_t first,
                       int64_t down, int64_t across, const float *x, float *to) {
    for (int64_t i = 0; i < band->input_rows; i++, to += band->pitch) {
        int64_t h = (first + i) * window->sh + down - window->top;
        if (h < 0 || h >= window->height)
            memset(to, 0, (size_t)band->pitch * sizeof *to);
        else
            copy_row(x + h * window->width, window->width, window->sw, across - window->left,
                     band->pitch, to);
    }
}

void band_copy(const struct window *window, const struct band *band, int64_t first,
               int64_t channels, const float *x, float *to) {
    int64_t used = band->input_rows * band->pitch;
    for (int64_t c = 0; c < channels; c++, x += window->height * window->width)
        for (int64_t down = 0; down < band->phases_down; down++)
            for (int64_t across = 0; across < band->phases_across; across++, to += band->plane) {
                copy_phase(window, band, first, down, across, x, to);
                memset(to + used, 0, (size_t)(band->plane - used) * sizeof *to);
            }
    memset(to, 0, (size_t)(WINDOW_SLACK + band->pitch) * sizeof *to);
}
