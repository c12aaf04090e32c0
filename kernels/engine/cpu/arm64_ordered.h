/* arm64_ordered.h - instructions that the compiler neither moves nor pairs.
 *
 * A core that executes in order (Cortex-A55) waits for a value that is loaded just before its use,
 * and it executes nothing else while it loads a pair of 128-bit registers. Compilers order
 * instructions for other cores, so the hottest loops are written instruction by instruction:
 * assembly that is volatile keeps its order. Cores that reorder instructions run it as fast. */
#ifndef FARMHAND_ARM64_ORDERED_H
#define FARMHAND_ARM64_ORDERED_H

#include "vector.h"

ALWAYS_INLINE v4 load4_ordered(const float *from, int64_t bytes) {
    v4 x;
    __asm__ volatile("ldr %q0, [%1, %2]" : "=w"(x) : "r"(from), "r"(bytes));
    return x;
}

/* sum += a * b, rounded once. */
ALWAYS_INLINE void add_product4_ordered(v4 *sum, v4 a, v4 b) {
    __asm__ volatile("fmla %0.4s, %1.4s, %2.4s" : "+w"(*sum) : "w"(a), "w"(b));
}

ALWAYS_INLINE v4 low4(v8 x) { return __builtin_shufflevector(x, x, 0, 1, 2, 3); }
ALWAYS_INLINE v4 high4(v8 x) { return __builtin_shufflevector(x, x, 4, 5, 6, 7); }
ALWAYS_INLINE v8 join4(v4 low, v4 high) {
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
}

#endif
