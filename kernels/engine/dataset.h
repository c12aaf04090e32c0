/* dataset.h - data sets: generated on the phone from a seed, or read from a file; in memory, or in
 * storage.
 *
 * A stream is one column of a data set (the images, or their labels). Streams of one plan agree
 * sample by sample: the class of sample s is hash(seed, s), whichever stream is read. Data sets are
 * made before the first step; the operation "load" then copies one batch per step, which is what
 * the timed phase "load" measures. A data set in storage (--input storage) is not in memory: a
 * batch is read from the data file or, for generated streams, from the file "dataset" in a folder
 * that the runner may write to. That file holds the streams as they would be in memory, each from a
 * multiple of 4096 bytes on; it is removed as soon as it is open, so that nothing is left behind by
 * a run that is killed.
 *
 *   GENERATOR INTS | FLOATS  (the bar is always there, also where one side of it is empty)
 *   image CLASSES |          byte (C,H,W): a smooth picture of the class, with noise
 *   rows CLASSES |           float (F): a point near the point of the class
 *   label CLASSES |          index (): the class
 *   one_hot CLASSES |        float (CLASSES): the class as a one-hot vector
 *   tokens SYMBOLS |         index (T): a text in which every symbol has likely successors
 *   next_tokens SYMBOLS |    index (T): the same text, one symbol later
 *   token_class SYMBOLS CLASSES |  index (T): a text whose symbols depend on the class
 *   normal |                 float: independent normal values
 *   constant | VALUE         float: one value
 *   personal CLASSES FIRST | image as above, drifting from sample FIRST on (daily-increment)
 *   file NUMBER LIMIT |      byte, index or float, from column NUMBER (from 0) of the data file
 *                            (--data FILE); indices must lie in 0..LIMIT-1; LIMIT is 0 for the
 *                            other types
 *
 * The operation: `load : out : STREAM FIRST ADVANCE : SCALE SHIFT` copies samples
 * (FIRST + step * ADVANCE + n) mod COUNT; bytes become value * SCALE + SHIFT. The first axis of out
 * is the batch.
 *
 * THE DATA FILE has a text head of at most 4096 bytes, followed by its columns in the order of the
 * head, as they are in memory (indices and floats little-endian, 4 bytes each). Each column begins
 * at a multiple of 64 bytes from the start of the file, with zeros in between:
 *   farmhand-data 1
 *   column TYPE COUNT RANK DIM...      one line each, 16 at most; TYPE float|index|byte
 *   end
 * The file ends with the last byte of its last column; a file of any other length is refused. A
 * stream takes the first COUNT samples of its column, whose type and shape must equal its own.
 */
#ifndef FARMHAND_DATASET_H
#define FARMHAND_DATASET_H

#include "engine.h"
#include "fault.h"

enum { STREAMS_MAX = 16, STREAM_INTS_MAX = 4, STREAM_FLOATS_MAX = 4 };

enum generator {
    GENERATOR_IMAGE,
    GENERATOR_ROWS,
    GENERATOR_LABEL,
    GENERATOR_ONE_HOT,
    GENERATOR_TOKENS,
    GENERATOR_NEXT_TOKENS,
    GENERATOR_TOKEN_CLASS,
    GENERATOR_NORMAL,
    GENERATOR_CONSTANT,
    GENERATOR_PERSONAL,
    GENERATOR_FILE,
    GENERATORS
};

/* One `stream` line of a plan. rank may be 0 (a label); every dim is at least 1. */
struct stream {
    enum type type;
    int64_t count; /* samples */
    int rank;
    int64_t dim[RANK_MAX]; /* of one sample */
    enum generator generator;
    int ints, reals;
    int64_t i[STREAM_INTS_MAX];
    float f[STREAM_FLOATS_MAX];
};

/* Returns the generator of that name, or GENERATORS. */
enum generator generator_named(const char *name);

/* Why this stream is invalid (part of a sentence), or NULL. */
const char *stream_check(const struct stream *stream);
/* Values of one sample, and bytes of all samples; only for streams that passed the check. */
int64_t stream_values(const struct stream *stream);
size_t stream_bytes(const struct stream *stream);

/* Why a load operation that passed check_op(), which does not know the streams, does not fit the
 * plan's streams, or NULL. */
const char *load_check(const struct op *op, const struct stream *streams, int count);

/* The first sample of the batch that a load operation copies in a step. */
int64_t load_first_sample(const struct op *op, const struct stream *stream, uint64_t step);

/* Where samples come from, and where they are kept. */
struct dataset_settings {
    const char *file;    /* the data file; NULL: no stream reads one */
    const char *storage; /* the folder for a data set in storage; NULL: in memory */
    int64_t read_bytes;  /* of the largest batch, for a data set in storage */
};

/* Generates or reads every stream. NULL: fault. */
struct dataset *dataset_open(const struct stream *streams, int count, uint64_t seed,
                             const struct dataset_settings *settings, struct fault *fault);
/* Bytes in memory: all streams, each rounded up to ALIGNMENT, as the lowering predicts it; for a
 * data set in storage, the buffer that batches are read into. */
size_t dataset_bytes(const struct dataset *dataset);
const struct stream *dataset_stream(const struct dataset *dataset, int number);

/* All samples of a stream of a data set in memory. */
const void *dataset_samples(const struct dataset *dataset, int number);

/* Samples [first, first + count) of a stream, which it has; those of a data set in storage are read
 * now, and are valid until the next call. NULL: they cannot be read, see dataset_check(). */
const uint8_t *dataset_batch(struct dataset *dataset, int number, int64_t first, int64_t count);

/* Whether all batches were read so far; false: fault. */
bool dataset_check(const struct dataset *dataset, struct fault *fault);

/* Whether all files of a data set in storage are read past the page cache. */
bool dataset_is_direct(const struct dataset *dataset);

#endif
