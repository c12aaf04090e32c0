/* load.cl - selects a batch of a data set that is on the device (--feed preloaded).
 *
 * Sample n of the batch is sample (first + n) % samples of the data set. One work item per value.
 * Bytes become floats here, as in kernels/engine/cpu/load.c. */

kernel void load_bytes(int count, int values, int samples, int first, float scale, float shift,
                       global const uchar *data, global float *batch) {
    int i = (int)get_global_id(0);
    if (i < count) {
        size_t sample = ((size_t)first + i / values) % samples;
        batch[i] = (float)data[sample * values + i % values] * scale + shift;
    }
}

/* Floats and indices: four bytes each, copied as they are. */
kernel void load_words(int count, int values, int samples, int first, global const uint *data,
                       global uint *batch) {
    int i = (int)get_global_id(0);
    if (i < count) {
        size_t sample = ((size_t)first + i / values) % samples;
        batch[i] = data[sample * values + i % values];
    }
}
