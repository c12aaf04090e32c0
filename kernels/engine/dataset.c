/* dataset.c - makes the streams of a plan, or reads them from a data file; keeps them in memory, or
 * in storage; see dataset.h.
 *
 * The one rule: a data file is hostile until its head, its length and its indices were checked. */
#define _GNU_SOURCE
#include "dataset.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "generators.h"
#include "os.h"
#include "storage.h"
#include "text.h"

enum { HEAD_BYTES = 4096, COLUMNS_MAX = 16 };
enum { PIECE_BYTES = 1 << 20 }; /* generated at once for a file, unless one sample is larger */

static const int64_t BYTES_MAX = INT64_C(1) << 40;

struct dataset {
    int count;
    uint64_t seed;
    struct stream stream[STREAMS_MAX];
    uint8_t *memory; /* of all streams or, in storage, of the batch that was read last */
    size_t bytes;
    uint8_t *samples[STREAMS_MAX]; /* in memory */
    bool stored;
    struct stored_file generated, given; /* the file that was written, and the data file */
    int64_t place[STREAMS_MAX];          /* in its file */
    struct fault fault;                  /* of a batch that cannot be read */
};

/* ---- streams ---- */

enum generator generator_named(const char *name) {
    static const char *const names[GENERATORS] = {
        "image",       "rows",   "label",    "one_hot",  "tokens", "next_tokens",
        "token_class", "normal", "constant", "personal", "file"};
    int n = 0;
    while (n < GENERATORS && strcmp(names[n], name) != 0) {
        n++;
    }
    return (enum generator)n;
}

int64_t stream_values(const struct stream *stream) {
    int64_t values = 1;
    for (int axis = 0; axis < stream->rank; axis++) {
        values *= stream->dim[axis];
    }
    return values;
}

size_t stream_bytes(const struct stream *stream) {
    return (size_t)stream_values(stream) * (size_t)stream->count * type_bytes(stream->type);
}

/* A generator's type (-1: any), rank (-1: any) and number of parameters. */
struct signature {
    int type, rank, ints, reals;
};

static const struct signature signatures[GENERATORS] = {
    [GENERATOR_IMAGE] = {TYPE_BYTE, 3, 1, 0},
    [GENERATOR_ROWS] = {TYPE_FLOAT, -1, 1, 0},
    [GENERATOR_LABEL] = {TYPE_INDEX, 0, 1, 0},
    [GENERATOR_ONE_HOT] = {TYPE_FLOAT, 1, 1, 0},
    [GENERATOR_TOKENS] = {TYPE_INDEX, 1, 1, 0},
    [GENERATOR_NEXT_TOKENS] = {TYPE_INDEX, 1, 1, 0},
    [GENERATOR_TOKEN_CLASS] = {TYPE_INDEX, 1, 2, 0},
    [GENERATOR_NORMAL] = {TYPE_FLOAT, -1, 0, 0},
    [GENERATOR_CONSTANT] = {TYPE_FLOAT, -1, 0, 1},
    [GENERATOR_PERSONAL] = {TYPE_BYTE, 3, 2, 0},
    [GENERATOR_FILE] = {-1, -1, 2, 0},
};

static const char *check_shape(enum type type, int rank, const int64_t *dim, int64_t count) {
    if ((int)type < TYPE_FLOAT || type > TYPE_BYTE || rank < 0 || rank > RANK_MAX) {
        return "has an invalid type or rank";
    }
    int64_t bytes = (int64_t)type_bytes(type);
    if (count < 1 || count > INT32_MAX) {
        return "has an invalid number of samples";
    }
    bytes *= count;
    for (int axis = 0; axis < rank; axis++) {
        if (dim[axis] < 1 || dim[axis] > BYTES_MAX / bytes) {
            return "has samples that are too large";
        }
        bytes *= dim[axis];
    }
    return NULL;
}

static const char *check_params(const struct stream *stream) {
    const int64_t *i = stream->i;
    if (stream->generator == GENERATOR_FILE) {
        if (i[0] < 0 || i[0] >= COLUMNS_MAX) {
            return "reads a column beyond the 16 of a data file";
        }
        int64_t min = stream->type == TYPE_INDEX ? 1 : 0;
        return i[1] < min || i[1] > INT32_MAX ? "has an invalid index limit" : NULL;
    }
    if (stream->generator == GENERATOR_PERSONAL && (i[1] < 0 || i[1] > stream->count)) {
        return "drifts from a sample that it does not have";
    }
    if (stream->generator == GENERATOR_TOKEN_CLASS && (i[1] < 1 || i[1] > INT32_MAX)) {
        return "has an invalid number of classes";
    }
    if (stream->generator == GENERATOR_ONE_HOT && i[0] != stream->dim[0]) {
        return "has samples whose length is not its number of classes";
    }
    if (stream->ints > 0 && (i[0] < 1 || i[0] > INT32_MAX)) {
        return "has an invalid number of classes or symbols";
    }
    return NULL;
}

const char *stream_check(const struct stream *stream) {
    if ((int)stream->generator < 0 || stream->generator >= GENERATORS) {
        return "has an unknown generator";
    }
    const struct signature *signature = &signatures[stream->generator];
    if (signature->type >= 0 && signature->type != (int)stream->type) {
        return "has a type that its generator does not produce";
    }
    if (signature->rank >= 0 && signature->rank != stream->rank) {
        return "has a shape that its generator does not produce";
    }
    if (signature->ints != stream->ints || signature->reals != stream->reals) {
        return "has the wrong number of parameters";
    }
    const char *fault = check_shape(stream->type, stream->rank, stream->dim, stream->count);
    return fault ? fault : check_params(stream);
}

/* ---- the data file ---- */

struct column {
    enum type type;
    int rank;
    int64_t count, dim[RANK_MAX];
    int64_t offset, bytes;
};

struct data_file {
    int descriptor, columns;
    struct column column[COLUMNS_MAX];
};

/* Skips `word` and the one character after it; false: the text differs. */
static bool take_word(const char **at, const char *word, char after) {
    size_t length = strlen(word);
    if (strncmp(*at, word, length) != 0 || (*at)[length] != after) {
        return false;
    }
    *at += length + 1;
    return true;
}

/* Reads a number and skips it; -1: there is none. */
static int64_t take_number(const char **at) {
    int64_t number = **at >= '0' && **at <= '9' ? 0 : -1;
    for (; **at >= '0' && **at <= '9'; ++*at) {
        if (number > BYTES_MAX) {
            return -1;
        }
        number = number * 10 + (**at - '0');
    }
    return number;
}

static bool take_type(const char **at, enum type *type) {
    static const char *const names[] = {"float", "index", "byte"};
    for (int n = 0; n < 3; n++) {
        if (take_word(at, names[n], ' ')) {
            *type = (enum type)n;
            return true;
        }
    }
    return false;
}

/* Parses TYPE COUNT RANK DIM... and the end of the line. */
static bool take_column(const char **at, struct column *column) {
    if (!take_type(at, &column->type)) {
        return false;
    }
    column->count = take_number(at);
    if (*(*at)++ != ' ') {
        return false;
    }
    int64_t rank = take_number(at);
    if (rank < 0 || rank > RANK_MAX) {
        return false;
    }
    column->rank = (int)rank;
    for (int axis = 0; axis < column->rank; axis++) {
        if (*(*at)++ != ' ') {
            return false;
        }
        column->dim[axis] = take_number(at);
    }
    if (*(*at)++ != '\n') {
        return false;
    }
    return check_shape(column->type, column->rank, column->dim, column->count) == NULL;
}

static int64_t aligned(int64_t offset) { return (offset + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* Reads the head and compares it with the length of the file. */
static const char *read_head(struct data_file *file) {
    char head[HEAD_BYTES + 1] = {0};
    struct stat file_stat;
    if (fstat(file->descriptor, &file_stat) != 0 || !S_ISREG(file_stat.st_mode)) {
        return "is not a regular file";
    }
    int64_t length = file_stat.st_size < HEAD_BYTES ? (int64_t)file_stat.st_size : HEAD_BYTES;
    if (!read_fully(file->descriptor, head, (size_t)length, 0)) {
        return "cannot be read";
    }
    const char *at = head;
    if (!take_word(&at, "farmhand-data 1", '\n')) {
        return "does not begin with the line 'farmhand-data 1'";
    }
    for (file->columns = 0; take_word(&at, "column", ' '); file->columns++) {
        if (file->columns == COLUMNS_MAX || !take_column(&at, &file->column[file->columns])) {
            return "has a malformed column line";
        }
    }
    if (!take_word(&at, "end", '\n')) {
        return "has a head without the line 'end'";
    }
    int64_t place = at - head;
    for (int n = 0; n < file->columns; n++) {
        struct column *column = &file->column[n];
        struct stream shape = {.type = column->type, .rank = column->rank, .count = column->count};
        memcpy(shape.dim, column->dim, sizeof shape.dim);
        column->offset = aligned(place);
        column->bytes = (int64_t)stream_bytes(&shape);
        place = column->offset + column->bytes;
    }
    return place == (int64_t)file_stat.st_size ? NULL : "has another length than its head says";
}

static bool column_fits(const struct column *column, const struct stream *stream) {
    if (column->type != stream->type || column->rank != stream->rank ||
        column->count < stream->count) {
        return false;
    }
    for (int axis = 0; axis < stream->rank; axis++) {
        if (column->dim[axis] != stream->dim[axis]) {
            return false;
        }
    }
    return true;
}

static bool are_indices(const int32_t *index, int64_t count, int64_t limit) {
    for (int64_t n = 0; n < count; n++) {
        if (index[n] < 0 || index[n] >= limit) {
            return false;
        }
    }
    return true;
}

/* Checks the indices of a column that stays in its file, piece by piece. */
static const char *check_indices(const struct data_file *file, const struct stream *stream,
                                 int64_t offset) {
    static int32_t piece[1 << 14];
    int64_t left = stream_values(stream) * stream->count;
    while (left > 0) {
        int64_t count = left < (1 << 14) ? left : 1 << 14;
        if (!read_fully(file->descriptor, piece, (size_t)count * 4, offset)) {
            return "cannot be read";
        }
        if (!are_indices(piece, count, stream->i[1])) {
            return "has an index outside the limit of the plan";
        }
        left -= count;
        offset += count * 4;
    }
    return NULL;
}

static const char *read_column(const struct data_file *file, struct dataset *dataset, int number) {
    const struct stream *stream = &dataset->stream[number];
    void *out = dataset->samples[number];
    if (stream->i[0] >= file->columns || !column_fits(&file->column[stream->i[0]], stream)) {
        return "has no column with the type, shape and length that the plan reads; add it again";
    }
    int64_t offset = dataset->place[number] = file->column[stream->i[0]].offset;
    if (dataset->stored) {
        return stream->type == TYPE_INDEX ? check_indices(file, stream, offset) : NULL;
    }
    if (!read_fully(file->descriptor, out, stream_bytes(stream), offset)) {
        return "cannot be read";
    }
    if (stream->type == TYPE_INDEX &&
        !are_indices(out, stream_values(stream) * stream->count, stream->i[1])) {
        return "has an index outside the limit of the plan";
    }
    return NULL;
}

static bool is_file_stream(const struct dataset *dataset, int number) {
    return dataset->stream[number].generator == GENERATOR_FILE;
}

/* Reads all columns that streams need, or finds out where they are; returns part of a sentence
 * where that fails. */
static const char *read_streams(struct dataset *dataset, const char *path) {
    struct data_file file = {.descriptor = open(path, O_RDONLY | O_CLOEXEC)};
    if (file.descriptor < 0) {
        return "cannot be opened";
    }
    const char *fault = read_head(&file);
    for (int n = 0; n < dataset->count && !fault; n++) {
        if (is_file_stream(dataset, n)) {
            fault = read_column(&file, dataset, n);
        }
    }
    close(file.descriptor);
    if (!fault && dataset->stored && !storage_open(&dataset->given, path)) {
        fault = "cannot be opened";
    }
    return fault;
}

/* ---- the file of generated streams ---- */

static int64_t sample_bytes(const struct stream *stream) {
    return stream_values(stream) * (int64_t)type_bytes(stream->type);
}

/* Gives every generated stream a place; returns the size of the largest piece of one. */
static size_t place_streams(struct dataset *dataset) {
    int64_t place = 0, largest = PIECE_BYTES;
    for (int n = 0; n < dataset->count; n++) {
        const struct stream *stream = &dataset->stream[n];
        int64_t sample = sample_bytes(stream);
        if (!is_file_stream(dataset, n)) {
            dataset->place[n] = place;
            place += (int64_t)stream_bytes(stream) + STORAGE_BLOCK - 1;
            place -= place % STORAGE_BLOCK;
            largest = sample > largest ? sample : largest;
        }
    }
    return (size_t)largest;
}

static bool write_stream(struct dataset *dataset, int number, uint8_t *piece) {
    const struct stream *stream = &dataset->stream[number];
    int64_t sample = sample_bytes(stream);
    int64_t most = PIECE_BYTES / sample > 0 ? PIECE_BYTES / sample : 1;
    for (int64_t first = 0; first < stream->count; first += most) {
        int64_t last = first + most < stream->count ? first + most : stream->count;
        generate_samples(stream, number, dataset->seed, first, last, piece);
        if (!storage_write(&dataset->generated, piece, (size_t)((last - first) * sample),
                           dataset->place[number] + first * sample)) {
            return false;
        }
    }
    return true;
}

static void *map_memory(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static bool refuse_for_memory(struct fault *fault) {
    return fault_set(fault, STATUS_OUT_OF_MEMORY,
                     "the data set is not usable: it does not fit in memory");
}

static bool write_streams(struct dataset *dataset, const char *folder, struct fault *fault) {
    char path[PATH_BYTES];
    size_t largest = place_streams(dataset);
    uint8_t *piece = map_memory(largest);
    if (piece == NULL) {
        return refuse_for_memory(fault);
    }
    bool fine = join_path(path, folder, "dataset") && storage_create(&dataset->generated, path);
    bool created = fine;
    for (int n = 0; n < dataset->count && fine; n++) {
        fine = is_file_stream(dataset, n) || write_stream(dataset, n, piece);
    }
    fine = fine && storage_finish(&dataset->generated, path);
    if (!fine) {
        fault_set(fault, STATUS_IO, "cannot write the data set %.200s: %s; free space on the phone",
                  path, os_error_text());
    }
    if (created) {
        unlink(path);
    }
    munmap(piece, largest);
    return fine;
}

/* ---- data sets ---- */

/* Gives every stream its place in memory. */
static bool allocate_streams(struct dataset *dataset) {
    size_t place[STREAMS_MAX];
    for (int n = 0; n < dataset->count; n++) {
        place[n] = dataset->bytes;
        dataset->bytes += (size_t)aligned((int64_t)stream_bytes(&dataset->stream[n]));
    }
    dataset->memory = dataset->bytes == 0 ? NULL : map_memory(dataset->bytes);
    for (int n = 0; n < dataset->count; n++) {
        dataset->samples[n] = dataset->memory + place[n];
    }
    return dataset->bytes == 0 || dataset->memory != NULL;
}

/* Why a stream is invalid, and the number of that stream. */
static const char *check_streams(const struct stream *streams, int count, const char *file,
                                 int *number) {
    for (*number = 0; *number < count; ++*number) {
        const char *fault = stream_check(&streams[*number]);
        if (fault) {
            return fault;
        }
        if (streams[*number].generator == GENERATOR_FILE && file == NULL) {
            return "reads a data file, but none was given; pass --data FILE";
        }
    }
    return NULL;
}

/* Makes the generated streams, in memory or in storage; *others: how many streams are not. */
static bool make_streams(struct dataset *dataset, const char *storage, int *others,
                         struct fault *fault) {
    *others = 0;
    for (int n = 0; n < dataset->count; n++) {
        *others += is_file_stream(dataset, n);
    }
    if (dataset->stored) {
        return *others == dataset->count || write_streams(dataset, storage, fault);
    }
    if (!allocate_streams(dataset)) {
        return refuse_for_memory(fault);
    }
    for (int n = 0; n < dataset->count; n++) {
        if (!is_file_stream(dataset, n)) {
            generate_samples(&dataset->stream[n], n, dataset->seed, 0, dataset->stream[n].count,
                             dataset->samples[n]);
        }
    }
    return true;
}

struct dataset *dataset_open(const struct stream *streams, int count, uint64_t seed,
                             const struct dataset_settings *settings, struct fault *fault) {
    int number = 0, from_file = 0;
    const char *reason = count < 0 || count > STREAMS_MAX
                             ? "exceeds the limit of 16 streams"
                             : check_streams(streams, count, settings->file, &number);
    if (reason) {
        fault_set(fault, STATUS_BAD_PLAN, "the data set is not usable: stream %d %s", number,
                  reason);
        return NULL;
    }
    struct dataset *dataset = calloc(1, sizeof *dataset);
    if (dataset == NULL) {
        refuse_for_memory(fault);
        return NULL;
    }
    dataset->count = count;
    dataset->seed = seed;
    dataset->stored = settings->storage != NULL;
    memcpy(dataset->stream, streams, (size_t)count * sizeof *streams);
    if (dataset->stored && count > 0) {
        dataset->bytes = storage_buffer_bytes(settings->read_bytes);
        dataset->memory = map_memory(dataset->bytes);
        if (dataset->memory == NULL) {
            refuse_for_memory(fault);
            return NULL;
        }
        memset(dataset->memory, 0, dataset->bytes); /* so that every page is present */
    }
    if (!make_streams(dataset, settings->storage, &from_file, fault)) {
        return NULL;
    }
    reason = from_file > 0 ? read_streams(dataset, settings->file) : NULL;
    if (reason) {
        fault_set(fault, STATUS_IO, "the data set is not usable: the data file %s", reason);
        return NULL;
    }
    return dataset;
}

size_t dataset_bytes(const struct dataset *dataset) { return dataset->bytes; }

const struct stream *dataset_stream(const struct dataset *dataset, int number) {
    return &dataset->stream[number];
}

const void *dataset_samples(const struct dataset *dataset, int number) {
    return dataset->samples[number];
}

const uint8_t *dataset_batch(struct dataset *dataset, int number, int64_t first, int64_t count) {
    const struct stream *stream = &dataset->stream[number];
    int64_t sample = sample_bytes(stream);
    if (!dataset->stored) {
        return dataset->samples[number] + first * sample;
    }
    const uint8_t *batch =
        storage_read(is_file_stream(dataset, number) ? &dataset->given : &dataset->generated,
                     dataset->memory, dataset->place[number] + first * sample, count * sample);
    if (batch == NULL) {
        fault_set(&dataset->fault, STATUS_IO, "cannot read the data set: %s; check the storage",
                  os_error_text());
    }
    return batch;
}

bool dataset_check(const struct dataset *dataset, struct fault *fault) {
    return dataset->fault.status == STATUS_DONE ||
           fault_set(fault, dataset->fault.status, "%s", dataset->fault.text);
}

bool dataset_is_direct(const struct dataset *dataset) {
    bool direct = dataset->count > 0;
    for (int n = 0; n < dataset->count; n++) {
        direct = direct &&
                 (is_file_stream(dataset, n) ? dataset->given.direct : dataset->generated.direct);
    }
    return direct;
}
