/* common.cl - vectors of WIDE floats, and the sum over a work group; in front of every file. */
#ifndef WIDE
#define WIDE 8
#endif
#ifndef GROUP
#define GROUP 64
#endif

/* Loops over a register tile must be unrolled, or the tile lives in memory instead of registers. */
#define UNROLL _Pragma("unroll")
#define JOIN(left, right) left##right
#define JOINED(left, right) JOIN(left, right)
typedef JOINED(float, WIDE) wide;
/* The same at any address of a float, since a row may begin anywhere. */
typedef wide wide_unaligned __attribute__((aligned(4)));
typedef float4 float4_unaligned __attribute__((aligned(4)));
typedef union {
    wide vector;
    float values[WIDE];
} wide_lanes;

/* The sum of `value` over all items of a group, returned to each of them. */
float group_sum(float value, local float *part) {
    int item = (int)get_local_id(0);
    part[item] = value;
    for (int half_of = GROUP / 2; half_of > 0; half_of /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < half_of) {
            part[item] += part[item + half_of];
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum = part[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    return sum;
}
