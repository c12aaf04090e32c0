/* window.c - copies bands of images; see window.h. */
#include "window.h"

#include <string.h>

#include "vector.h"

typedef float v4_any __attribute__((vector_size(16), aligned(4), may_alias));

static int64_t clamp(int64_t x, int64_t low, int64_t high) {
    return x < low ? low : x > high ? high : x;
}

/* Rows are short, and a call of memcpy for each would cost more than the copy. */
static void copy_floats(float *to, const float *from, int64_t count) {
    if (count >= 8) {
        for (int64_t j = 0; j + 8 <= count; j += 8)
            store8(to + j, load8(from + j));
        store8(to + count - 8, load8(from + count - 8));
    } else if (count >= 4) {
        v4_any first = *(const v4_any *)from, last = *(const v4_any *)(from + count - 4);
        *(v4_any *)to = first;
        *(v4_any *)(to + count - 4) = last;
    } else {
        for (int64_t j = 0; j < count; j++)
            to[j] = from[j];
    }
}

/* to[j] = from[2 j]; nothing behind the last value is read. */
static void copy_every_second(float *to, const float *from, int64_t count) {
    int64_t j = 0;
    for (; j + 8 < count; j += 8) {
        v8 a = load8(from + 2 * j), b = load8(from + 2 * j + 8);
        store8(to + j, __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14));
    }
    for (; j < count; j++)
        to[j] = from[2 * j];
}

static void clear_floats(float *to, int64_t count) {
    for (int64_t j = 0; j < count; j++)
        to[j] = 0.0f;
}

/* The part of a row of a phase that lies inside the image: to[j] = x[j * step + shift]. */
struct stretch {
    int64_t from, until;
};

static struct stretch stretch_of(int64_t width, int64_t step, int64_t shift, int64_t count) {
    struct stretch stretch = {0, 0};
    stretch.from = shift < 0 ? clamp((-shift + step - 1) / step, 0, count) : 0;
    stretch.until = stretch.from;
    if (shift < width)
        stretch.until = clamp((width - shift + step - 1) / step, stretch.from, count);
    return stretch;
}

static void copy_stretch(struct stretch stretch, const float *x, int64_t step, int64_t shift,
                         float *to) {
    int64_t count = stretch.until - stretch.from;
    if (count == 0)
        return;
    const float *from = x + stretch.from * step + shift;
    to += stretch.from;
    if (step == 1) {
        copy_floats(to, from, count);
    } else if (step == 2) {
        copy_every_second(to, from, count);
    } else {
        for (int64_t j = 0; j < count; j++)
            to[j] = from[j * step];
    }
}

static void copy_phase(const struct window *window, const struct band *band, int64_t first,
                       int64_t down, int64_t across, const float *x, float *to, bool cleared) {
    int64_t shift = across - window->left;
    struct stretch stretch = stretch_of(window->width, window->sw, shift, band->pitch);
    for (int64_t i = 0; i < band->input_rows; i++, to += band->pitch) {
        int64_t h = (first + i) * window->sh + down - window->top;
        bool inside = h >= 0 && h < window->height;
        if (inside)
            copy_stretch(stretch, x + h * window->width, window->sw, shift, to);
        if (cleared)
            continue;
        clear_floats(to, inside ? stretch.from : band->pitch);
        if (inside)
            clear_floats(to + stretch.until, band->pitch - stretch.until);
    }
}

void band_copy(const struct window *window, const struct band *band, int64_t first,
               int64_t channels, const float *x, float *to) {
    int64_t used = band->input_rows * band->pitch;
    for (int64_t c = 0; c < channels; c++, x += window->height * window->width)
        for (int64_t down = 0; down < band->phases_down; down++)
            for (int64_t across = 0; across < band->phases_across; across++, to += band->plane) {
                copy_phase(window, band, first, down, across, x, to, false);
                clear_floats(to + used, band->plane - used);
            }
    memset(to, 0, (size_t)(WINDOW_SLACK + band->pitch) * sizeof *to);
}

void band_refill(const struct window *window, const struct band *band, const float *x, float *to) {
    for (int64_t down = 0; down < band->phases_down; down++)
        for (int64_t across = 0; across < band->phases_across; across++, to += band->plane)
            copy_phase(window, band, 0, down, across, x, to, true);
}
