/* load.c - the operation load: copies the next batch of a data set to where the model reads it,
 * from memory or from storage.
 *
 *   batch = the samples of STREAM from FIRST + step ADVANCE on, counted around (dataset.h)
 *   bytes become floats: SCALE byte + SHIFT */
#include "../dataset.h"
#include "ops.h"
#include "parallel_for.h"
#include "vector.h"

static op_run load_run;
static op_check check_load;

const struct op_kind load_kinds[] = {
    {"load", ": batch : STREAM FIRST ADVANCE : SCALE SHIFT", check_load, .run = load_run},
    {.name = NULL},
};

/* Consecutive samples of a stream. */
struct batch {
    enum type type;
    const uint8_t *samples;
    uint8_t *out;
    int64_t count, values; /* count: samples; values: per sample */
    float scale, shift;
};

typedef uint8_t b8 __attribute__((vector_size(8)));

static void bytes_to_floats(const uint8_t *from, float *to, int64_t count, float scale,
                            float shift) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        b8 values;
        memcpy(&values, from + i, sizeof values);
        store8(to + i, __builtin_convertvector(values, v8) * scale + shift);
    }
    for (; i < count; i++) {
        to[i] = (float)from[i] * scale + shift;
    }
}

static void load_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct batch *batch = context;
    size_t size = type_bytes(batch->type);
    int64_t n, last;
    split_range(batch->count, part, parts, &n, &last);
    for (; n < last; n++) {
        const uint8_t *from = batch->samples + (size_t)(n * batch->values) * size;
        uint8_t *to = batch->out + (size_t)(n * batch->values) * 4;
        if (batch->type == TYPE_BYTE) {
            bytes_to_floats(from, (float *)to, batch->values, batch->scale, batch->shift);
        } else {
            memcpy(to, from, (size_t)batch->values * 4);
        }
    }
}

int64_t load_first_sample(const struct op *op, const struct stream *stream, uint64_t step) {
    uint64_t samples = (uint64_t)stream->count;
    uint64_t advance = (uint64_t)op->i[2];
    return (int64_t)(((uint64_t)op->i[1] + step % samples * (advance % samples)) % samples);
}

/* After the last sample follows the first one, so that a batch may have several pieces. */
static void load_run(const struct op *op, struct exec_context *exec) {
    int number = (int)op->i[0];
    const struct tensor *out = op->out[0];
    const struct stream *stream = dataset_stream(exec->dataset, number);
    int64_t values = stream_values(stream), left = out->count / values;
    int64_t first = load_first_sample(op, stream, exec->step);
    struct batch piece = {.type = stream->type,
                          .out = out->data,
                          .values = values,
                          .scale = op->f[0],
                          .shift = op->f[1]};
    while (left > 0) {
        piece.count = left < stream->count - first ? left : stream->count - first;
        piece.samples = dataset_batch(exec->dataset, number, first, piece.count);
        if (piece.samples == NULL) {
            return; /* the run ends with this step */
        }
        parallel_for(exec, piece.count, piece.count * values, load_part, &piece);
        piece.out += (size_t)(piece.count * values) * 4;
        left -= piece.count;
        first = 0;
    }
}

static const char *check_load(const struct op *op) {
    return op->i[0] < 0 || op->i[0] >= STREAMS_MAX || op->i[1] < 0 || op->i[2] < 0
               ? "has an invalid stream, first sample or advance"
               : NULL;
}

const char *load_check(const struct op *op, const struct stream *streams, int count) {
    if (op->i[0] >= count) {
        return "loads from a stream that the plan does not have";
    }
    const struct stream *stream = &streams[op->i[0]];
    const struct tensor *out = op->out[0];
    if ((out->type == TYPE_INDEX) != (stream->type == TYPE_INDEX)) {
        return "loads a stream of the wrong type";
    }
    int64_t values = stream_values(stream);
    if (out->rank < 1 || out->count % values != 0 || out->count / values != out->dim[0]) {
        return "loads samples of the wrong size";
    }
    if (op->i[1] >= stream->count) {
        return "begins after the last sample of its stream";
    }
    return NULL;
}
