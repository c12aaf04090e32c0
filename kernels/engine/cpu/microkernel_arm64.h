/* microkernel_arm64.h - the inner loop of the microkernel for arm64, instruction by instruction.
 *
 * Values are loaded one depth ahead, between products that do not need them: see arm64_ordered.h.
 * The sums, one row of B and two depths of A fill all 32 registers.
 *
 * Every sum adds the same products in the same order as on other architectures. */
#ifndef FARMHAND_MICROKERNEL_ARM64_H
#define FARMHAND_MICROKERNEL_ARM64_H

#include "arm64_ordered.h"
#include "microkernel.h"

enum { QUARTERS = NR / 4 };

/* Depths are counted from the beginning of a turn of the loop; A has values for even and for odd
 * depths. `by_offsets` and `depth` are constants wherever they are used. */
struct products {
    v4 sum[QUARTERS][MR], b[QUARTERS], a_four[2], a_two[2];
    const float *a;           /* the values of A at depth 0 */
    const float *panel;       /* the row of B at depth 0, unless by_offsets: */
    const int32_t *offsets;   /* of the row at depth 0 */
    const float *first, *row; /* what offsets refer to; the row that is loaded */
    int64_t third, fourth;    /* where quarters of a row are, in bytes */
    bool by_offsets;
};

ALWAYS_INLINE void load_b(struct products *x, int depth, int quarter) {
    if (!x->by_offsets) {
        __asm__ volatile("ldr %q0, [%1, %2]"
                         : "=w"(x->b[quarter])
                         : "r"(x->panel), "i"(64 * depth + 16 * quarter));
    } else if (quarter < 2) {
        __asm__ volatile("ldr %q0, [%1, %2]"
                         : "=w"(x->b[quarter])
                         : "r"(x->row), "i"(16 * quarter));
    } else {
        int64_t at = quarter == 2 ? x->third : x->fourth;
        __asm__ volatile("ldr %q0, [%1, %2]" : "=w"(x->b[quarter]) : "r"(x->row), "r"(at));
    }
}

ALWAYS_INLINE void load_a_four(struct products *x, int depth) {
    __asm__ volatile("ldr %q0, [%1, %2]" : "=w"(x->a_four[depth % 2]) : "r"(x->a), "i"(24 * depth));
}

ALWAYS_INLINE void load_a_two(struct products *x, int depth) {
    __asm__ volatile("ldr %d0, [%1, %2]"
                     : "=w"(x->a_two[depth % 2])
                     : "r"(x->a), "i"(24 * depth + 16));
}

ALWAYS_INLINE void multiply(struct products *x, int depth, int quarter, int first, int last) {
    UNROLL
    for (int row = first; row < last; row++) {
        const v4 *a = row < 4 ? x->a_four : x->a_two;
        __asm__ volatile("fmla %0.4s, %1.4s, %2.s[%c3]"
                         : "+w"(x->sum[quarter][row])
                         : "w"(x->b[quarter]), "w"(a[depth % 2]), "i"(row % 4));
    }
}

/* Adds one depth, and loads what the next one needs, if there is one. */
ALWAYS_INLINE void add_depth(struct products *x, int rows, int depth, bool is_last) {
    bool moves = x->by_offsets && !is_last;
    int64_t offset = 0;
    int some = rows < 3 ? rows : 3;
    multiply(x, depth, 0, 0, 1);
    load_b(x, depth, 3); /* of this depth: until now the depth before used the register */
    multiply(x, depth, 0, 1, some);
    if (moves) {
        __asm__ volatile("ldrsw %0, [%1, %2]"
                         : "=r"(offset)
                         : "r"(x->offsets), "i"(4 * (depth + 1)));
    }
    multiply(x, depth, 0, 3, rows);
    multiply(x, depth, 1, 0, 1);
    if (!is_last) {
        load_a_four(x, depth + 1);
    }
    multiply(x, depth, 1, 1, some);
    if (moves) {
        __asm__ volatile("add %0, %1, %2, lsl #2" : "=r"(x->row) : "r"(x->first), "r"(offset));
    }
    multiply(x, depth, 1, 3, rows);
    multiply(x, depth, 2, 0, 1);
    if (!is_last && rows > 4) {
        load_a_two(x, depth + 1);
    }
    multiply(x, depth, 2, 1, some);
    if (!is_last) {
        load_b(x, depth + 1, 0);
    }
    multiply(x, depth, 2, 3, rows);
    multiply(x, depth, 3, 0, 1);
    if (!is_last) {
        load_b(x, depth + 1, 1);
    }
    multiply(x, depth, 3, 1, some);
    if (!is_last) {
        load_b(x, depth + 1, 2);
    }
    multiply(x, depth, 3, 3, rows);
}

ALWAYS_INLINE void add_some_depths(struct products *x, int rows, int depths) {
    UNROLL
    for (int depth = 0; depth < depths; depth++) {
        add_depth(x, rows, depth, false);
    }
    x->a += depths * MR;
    x->panel += depths * NR;
    x->offsets += depths;
}

ALWAYS_INLINE void add_all_depths(struct products *x, int rows, int64_t depths) {
    load_a_four(x, 0);
    if (rows > 4) {
        load_a_two(x, 0);
    }
    UNROLL
    for (int quarter = 0; quarter < 3; quarter++) {
        load_b(x, 0, quarter);
    }
    /* At least one depth is left for the end, which loads nothing after itself. */
    const float *last_turn = x->a + (depths - 1) / 4 * 4 * MR;
    while (x->a != last_turn) {
        add_some_depths(x, rows, 4);
    }
    depths = (depths - 1) % 4 + 1;
    if (depths > 2) {
        add_some_depths(x, rows, 2);
        depths -= 2;
    }
    if (depths == 2) {
        add_depth(x, rows, 0, false);
        add_depth(x, rows, 1, true);
    } else {
        add_depth(x, rows, 0, true);
    }
}

ALWAYS_INLINE void add_products(struct accumulators *sums, const struct tile *tile, int rows) {
    if (tile->depth < 1) {
        return;
    }
    struct products x = {.a = tile->a};
    UNROLL
    for (int row = 0; row < rows; row++) {
        x.sum[0][row] = low4(sums->left[row]);
        x.sum[1][row] = high4(sums->left[row]);
        x.sum[2][row] = low4(sums->right[row]);
        x.sum[3][row] = high4(sums->right[row]);
    }
    if (tile->b_offsets) {
        x.by_offsets = true;
        x.offsets = tile->b_offsets;
        x.first = tile->b_left;
        x.row = x.first + *x.offsets;
        x.third = (int64_t)((intptr_t)tile->b_right - (intptr_t)tile->b_left);
        x.fourth = x.third + 16;
        add_all_depths(&x, rows, tile->depth);
    } else {
        x.panel = tile->b_left;
        add_all_depths(&x, rows, tile->depth);
    }
    UNROLL
    for (int row = 0; row < rows; row++) {
        sums->left[row] = join4(x.sum[0][row], x.sum[1][row]);
        sums->right[row] = join4(x.sum[2][row], x.sum[3][row]);
    }
}

#endif
