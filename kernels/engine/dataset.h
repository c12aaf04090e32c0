/* data.h - data sets: made on the phone from a seed, or read from a file; kept in memory.
 *
 * A stream is one column of a data set (the images, or their labels). Streams of one plan agree
 * sample by sample: sample s has the class that hash(seed, s) says, whichever stream is asked.
 * Making them is part of getting ready; the operation "load" then copies one batch a step, which
 * is what the timed phase "load" measures.
 *
 *   GENERATOR INTS | FLOATS  (the bar stands always, also where one side of it is empty)
 *   image CLASSES |          byte (C,H,W): a smooth picture of the class, under noise
 *   rows CLASSES |           float (F): a point near the class's own point
 *   label CLASSES |          index (): the class
 *   one_hot CLASSES |        float (CLASSES): the same as numbers
 *   tokens SYMBOLS |         index (T): a text in which every symbol has likely followers
 *   next_tokens SYMBOLS |    index (T): the same text, one symbol later
 *   token_class SYMBOLS CLASSES |  index (T): a text whose symbols depend on the class
 *   normal |                 float: independent normal values
 *   constant | VALUE         float: one value
 *   personal CLASSES FIRST | image as above, but drifting from sample FIRST on (daily-increment)
 *   file NUMBER LIMIT |      byte, index or float, from the NUMBERth column (from 0) of the data
 *                            file (--data FILE); indices have to lie in 0..LIMIT-1; LIMIT is 0 for
 *                            the other types
 *
 * The operation: `load : out : STREAM FIRST : SCALE SHIFT` copies samples
 * (FIRST + step * batch + n) mod COUNT; bytes become value * SCALE + SHIFT. The first axis of out
 * is the batch.
 *
 * THE DATA FILE has a head of text, 4096 bytes at most, and then its columns as they lie in memory
 * (indices and floats little-endian, 4 bytes each), each beginning at a multiple of 64 bytes from
 * the start of the file, with zeros between, in the order of the head:
 *   farmhand-data 1
 *   column TYPE COUNT RANK DIM...      one line each, 16 at most; TYPE float|index|byte
 *   end
 * The file ends with the last byte of its last column; any other length is refused. A stream
 * takes the first COUNT samples of its column, whose type and shape have to be its own.
 */
#ifndef FARMHAND_DATA_H
#define FARMHAND_DATA_H

#include "engine.h"

enum { STREAMS_MAX = 16, STREAM_INTS_MAX = 4, STREAM_FLOATS_MAX = 4, DATA_FAULT_BYTES = 160 };

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

/* The generator of that name, or GENERATORS. */
enum generator generator_named(const char *name);

/* Why this stream cannot be made (part of a sentence), or NULL. */
const char *stream_check(const struct stream *stream);
/* Values of one sample, and bytes of all of them; only for streams that passed the check. */
int64_t stream_values(const struct stream *stream);
size_t stream_bytes(const struct stream *stream);

/* Why a load operation does not fit the plan's streams, or NULL. The kind's own check() cannot
 * know the streams; whoever reads a plan asks this as well. */
const char *load_check(const struct op *op, const struct stream *streams, int count);

/* How opening went: the plan is wrong, the file is, or there is not enough memory. */
enum dataset_result { DATASET_OPEN, DATASET_REFUSED, DATASET_UNREADABLE, DATASET_NO_MEMORY };

/* Makes every stream, in memory of its own; file may be NULL where no stream reads one. On any
 * result but DATASET_OPEN, fault holds part of a sentence and *dataset is NULL. */
enum dataset_result dataset_open(const struct stream *streams, int count, uint64_t seed,
                                 const char *file, struct dataset **dataset,
                                 char fault[DATA_FAULT_BYTES]);
void dataset_close(struct dataset *dataset);
/* Of all streams, each rounded up to ALIGNMENT: what whoever wrote the plan can foretell. */
size_t dataset_bytes(const struct dataset *dataset);
int dataset_streams(const struct dataset *dataset);
const struct stream *dataset_stream(const struct dataset *dataset, int number);
const void *dataset_samples(const struct dataset *dataset, int number);

#endif
