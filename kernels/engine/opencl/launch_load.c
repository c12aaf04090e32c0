/* launch_load.c - load, where the whole data set is on the device (load.cl, --feed preloaded). */
#include "launch.h"

#ifndef RUNNER_STATIC

static bool load(struct launcher *to, const struct op *op) {
    const struct tensor *batch = op->out[0];
    const struct stream *stream = &to->session->stream[op->i[0]];
    int64_t values = stream_values(stream);
    cl_handle data = to->session->stream_memory[op->i[0]];
    if (stream->type == TYPE_BYTE) {
        return LAUNCH(to, "load.cl", "load_bytes", grid1(batch->count), INT(batch->count),
                      INT(values), INT(stream->count), FIRST_SAMPLE, FLOAT(op->f[0]),
                      FLOAT(op->f[1]), HANDLE(data), BUFFER(batch));
    }
    return LAUNCH(to, "load.cl", "load_words", grid1(batch->count), INT(batch->count), INT(values),
                  INT(stream->count), FIRST_SAMPLE, HANDLE(data), BUFFER(batch));
}

const struct launch_entry load_launches[] = {
    {"load", load, 0},
    {"", NULL, 0},
};

#endif
