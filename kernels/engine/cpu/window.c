/* window.c - packs bands of images; see window.h. */
#include "window.h"

#include <string.h>

#include "vector.h"

static int64_t clamp(int64_t x, int64_t low, int64_t high) {
    return x < low ? low : x > high ? high : x;
}

/* Rows are short: a call of memcpy per row would cost more than the copy. */
static void copy_floats(float *to, const float *from, int64_t count) {
    if (count >= 8) {
        for (int64_t j = 0; j + 8 <= count; j += 8) {
            store8(to + j, load8(from + j));
        }
        store8(to + count - 8, load8(from + count - 8));
    } else if (count >= 4) {
        v4_any first = *(const v4_any *)from, last = *(const v4_any *)(from + count - 4);
        *(v4_any *)to = first;
        *(v4_any *)(to + count - 4) = last;
    } else {
        for (int64_t j = 0; j < count; j++) {
            to[j] = from[j];
        }
    }
}

/* to[j] = from[2 j]; nothing after the last value is read. */
static void copy_every_second(float *to, const float *from, int64_t count) {
    int64_t j = 0;
    for (; j + 8 < count; j += 8) {
        v8 a = load8(from + 2 * j), b = load8(from + 2 * j + 8);
        store8(to + j, __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14));
    }
    for (; j < count; j++) {
        to[j] = from[2 * j];
    }
}

static void zero_floats(float *to, int64_t count) {
    for (int64_t j = 0; j < count; j++) {
        to[j] = 0.0f;
    }
}

/* The columns [first, last) of a phase that lie inside the image: to[j] = x[j * step + shift]. */
struct column_range {
    int64_t first, last;
};

static struct column_range columns_inside(int64_t width, int64_t step, int64_t shift,
                                          int64_t count) {
    struct column_range range = {0, 0};
    range.first = shift < 0 ? clamp(div_up(-shift, step), 0, count) : 0;
    range.last = range.first;
    if (shift < width) {
        range.last = clamp(div_up(width - shift, step), range.first, count);
    }
    return range;
}

static void copy_columns(struct column_range range, const float *x, int64_t step, int64_t shift,
                         float *to) {
    int64_t count = range.last - range.first;
    if (count == 0) {
        return;
    }
    const float *from = x + range.first * step + shift;
    to += range.first;
    if (step == 1) {
        copy_floats(to, from, count);
    } else if (step == 2) {
        copy_every_second(to, from, count);
    } else {
        for (int64_t j = 0; j < count; j++) {
            to[j] = from[j * step];
        }
    }
}

static void pack_phase(const struct window *window, const struct band *band, int64_t first,
                       int64_t down, int64_t across, const float *x, float *to, bool zeroed) {
    int64_t shift = across - window->left;
    struct column_range range = columns_inside(window->width, window->sw, shift, band->pitch);
    for (int64_t i = 0; i < band->input_rows; i++, to += band->pitch) {
        int64_t h = (first + i) * window->sh + down - window->top;
        bool inside = h >= 0 && h < window->height;
        if (inside) {
            copy_columns(range, x + h * window->width, window->sw, shift, to);
        }
        if (zeroed) {
            continue;
        }
        zero_floats(to, inside ? range.first : band->pitch);
        if (inside) {
            zero_floats(to + range.last, band->pitch - range.last);
        }
    }
}

void pack_band(const struct window *window, const struct band *band, int64_t first,
               int64_t channels, const float *x, float *to) {
    int64_t packed = band->input_rows * band->pitch;
    for (int64_t c = 0; c < channels; c++, x += window->height * window->width) {
        for (int64_t down = 0; down < band->phases_down; down++) {
            for (int64_t across = 0; across < band->phases_across; across++, to += band->plane) {
                pack_phase(window, band, first, down, across, x, to, false);
                zero_floats(to + packed, band->plane - packed);
            }
        }
    }
    memset(to, 0, (size_t)(WINDOW_SLACK + band->pitch) * sizeof *to);
}

void repack_band(const struct window *window, const struct band *band, const float *x, float *to) {
    for (int64_t down = 0; down < band->phases_down; down++) {
        for (int64_t across = 0; across < band->phases_across; across++, to += band->plane) {
            pack_phase(window, band, 0, down, across, x, to, true);
        }
    }
}
