/* dataset.c - generates the streams of a plan sample by sample, or reads them from a data file.
 *
 * The one rule: a sample depends on the seed, its number and its stream only. Pictures, points and
 * texts are easy on purpose (a small model learns them within about twenty steps), because a loss
 * that does not fall must mean that training is broken. */
#define _GNU_SOURCE
#include "dataset.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "random.h"
#include "text.h"

enum { HEAD_BYTES = 4096, COLUMNS_MAX = 16, GRID = 6, CHANNELS_FOR_ALL = 1 << 20 };

static const int64_t BYTES_MAX = INT64_C(1) << 40;

/* What random numbers are drawn for; sample noise adds the number of its stream. */
enum purpose {
    FOR_CLASS = RANDOM_DATA,
    FOR_PICTURE,
    FOR_PERSON,
    FOR_POINT,
    FOR_SUCCESSORS,
    FOR_FAVOURITES,
    FOR_TEXT,
    FOR_NOISE
};

struct dataset {
    int count;
    size_t bytes;
    uint64_t seed;
    struct stream stream[STREAMS_MAX];
    uint8_t *samples[STREAMS_MAX];
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

/* ---- pictures ---- */

static int32_t class_of(uint64_t seed, int64_t sample, int64_t classes) {
    return (int32_t)(random_bits(seed, FOR_CLASS, (uint64_t)sample) % (uint64_t)classes);
}

/* A picture is a coarse grid of light and dark, interpolated smoothly over the pixels, plus a tint
 * per channel, so that models that average over pixels have something to learn as well. */
struct picture {
    float grid[GRID][GRID];
    float tint;
};

static void draw_picture(struct picture *picture, uint64_t key, int32_t class, int64_t channel) {
    uint64_t first = ((uint64_t)class * CHANNELS_FOR_ALL + (uint64_t)channel) * (GRID * GRID + 1);
    for (uint64_t cell = 0; cell < GRID * GRID; cell++) {
        picture->grid[cell / GRID][cell % GRID] = random_uniform(key, first + cell, 55.0f);
    }
    picture->tint = random_uniform(key, first + GRID * GRID, 45.0f);
}

static void blend_pictures(struct picture *picture, const struct picture *other, float weight) {
    for (int cell = 0; cell < GRID * GRID; cell++) {
        float *value = &picture->grid[cell / GRID][cell % GRID];
        *value += weight * (other->grid[cell / GRID][cell % GRID] - *value);
    }
    picture->tint += weight * (other->tint - picture->tint);
}

/* The cell of the periodic grid that a pixel lies in, and how far into the cell (0 to 1). */
static int grid_cell(int64_t pixel, float cells_per_pixel, float offset, float *fraction) {
    float position = ((float)pixel + 0.5f) * cells_per_pixel + offset;
    int cell = (int)position;
    *fraction = position - (float)cell;
    return cell < GRID ? cell : GRID;
}

static uint8_t byte_of(float value) {
    return value < 0.0f ? 0 : value > 255.0f ? 255 : (uint8_t)value;
}

/* The sum of two bytes around zero: -32..32, most often near 0. */
static float noise_of(uint64_t bits) {
    return (float)((int)(bits & 255) + (int)(bits >> 8 & 255) - 255) * 0.125f;
}

static void paint(uint8_t *pixels, const struct picture *picture, int64_t height, int64_t width,
                  float across, float down, uint64_t noise) {
    float cells_across = (float)GRID / (float)width, cells_down = (float)GRID / (float)height;
    uint64_t bits = 0;
    for (int64_t y = 0; y < height; y++) {
        float row[GRID + 2], below; /* the first two cells are repeated after the last */
        int top = grid_cell(y, cells_down, down, &below);
        for (int x = 0; x < GRID + 2; x++) {
            float upper = picture->grid[top % GRID][x % GRID];
            float lower = picture->grid[(top + 1) % GRID][x % GRID];
            row[x] = 128.0f + picture->tint + upper + below * (lower - upper);
        }
        for (int64_t x = 0; x < width; x++) {
            float right;
            int left = grid_cell(x, cells_across, across, &right);
            float value = row[left] + right * (row[left + 1] - row[left]);
            int64_t at = y * width + x;
            bits = at % 4 == 0 ? random_at(noise, (uint64_t)at / 4) : bits >> 16;
            pixels[at] = byte_of(value + noise_of(bits));
        }
    }
}

/* How far a sample has drifted from the common pictures (0) to one person's pictures (1). */
static float drift_of(const struct stream *stream, int64_t sample) {
    if (stream->generator != GENERATOR_PERSONAL || sample < stream->i[1]) {
        return 0.0f;
    }
    return (float)(sample - stream->i[1] + 1) / (float)(stream->count - stream->i[1]);
}

static void make_images(const struct stream *stream, uint64_t seed, uint64_t noise, uint8_t *out) {
    int64_t channels = stream->dim[0], height = stream->dim[1], width = stream->dim[2];
    uint64_t common = random_key(seed, FOR_PICTURE), person = random_key(seed, FOR_PERSON);
    for (int64_t sample = 0; sample < stream->count; sample++) {
        int32_t class = class_of(seed, sample, stream->i[0]);
        float drift = drift_of(stream, sample);
        uint64_t sample_key = random_at(noise, (uint64_t)sample);
        float across = 0.4f * random_unit(random_at(sample_key, 0));
        float down = 0.4f * random_unit(random_at(sample_key, 1));
        for (int64_t channel = 0; channel < channels; channel++) {
            struct picture picture, other;
            draw_picture(&picture, common, class, channel);
            if (drift > 0.0f) {
                draw_picture(&other, person, class, channel);
                blend_pictures(&picture, &other, drift);
            }
            paint(out, &picture, height, width, across, down,
                  random_at(sample_key, 2 + (uint64_t)channel));
            out += height * width;
        }
    }
}

/* ---- rows, labels and texts ---- */

static void make_rows(const struct stream *stream, uint64_t seed, uint64_t noise, float *out) {
    uint64_t points = random_key(seed, FOR_POINT);
    int64_t values = stream_values(stream);
    for (int64_t sample = 0; sample < stream->count; sample++) {
        uint64_t point = random_at(points, (uint64_t)class_of(seed, sample, stream->i[0]));
        uint64_t sample_key = random_at(noise, (uint64_t)sample);
        for (uint64_t n = 0; n < (uint64_t)values; n++) {
            *out++ = random_uniform(point, n, 1.5f) + random_uniform(sample_key, n, 0.8f);
        }
    }
}

static void make_labels(const struct stream *stream, uint64_t seed, int32_t *out) {
    for (int64_t sample = 0; sample < stream->count; sample++) {
        out[sample] = class_of(seed, sample, stream->i[0]);
    }
}

static void make_one_hot(const struct stream *stream, uint64_t seed, float *out) {
    int64_t classes = stream->i[0];
    memset(out, 0, stream_bytes(stream));
    for (int64_t sample = 0; sample < stream->count; sample++) {
        out[sample * classes + class_of(seed, sample, classes)] = 1.0f;
    }
}

/* Some symbols are far more frequent than others, as in real text. */
static int32_t skewed_symbol(uint64_t bits, int64_t symbols) {
    float unit = random_unit(bits);
    return (int32_t)(unit * unit * (float)symbols) % (int32_t)symbols;
}

/* Each symbol has three likely successors (6, 2 and 1 of 10 cases), else any symbol follows. */
static int32_t successor(uint64_t successors, int32_t symbol, uint64_t bits, int64_t symbols) {
    int case_of_ten = (int)(bits % 10);
    if (case_of_ten == 9) {
        return skewed_symbol(bits, symbols);
    }
    uint64_t choice = case_of_ten < 6 ? 0 : case_of_ten < 8 ? 1 : 2;
    return skewed_symbol(random_at(successors, (uint64_t)symbol * 3 + choice), symbols);
}

/* The text of a sample, without its first `skip` symbols. */
static void make_tokens(const struct stream *stream, uint64_t seed, int skip, int32_t *out) {
    uint64_t successors = random_key(seed, FOR_SUCCESSORS), texts = random_key(seed, FOR_TEXT);
    int64_t length = stream->dim[0], symbols = stream->i[0];
    for (int64_t sample = 0; sample < stream->count; sample++, out += length) {
        uint64_t text = random_at(texts, (uint64_t)sample);
        int32_t symbol = skewed_symbol(random_at(text, 0), symbols);
        for (int64_t n = 0; n < length + skip; n++) {
            if (n >= skip) {
                out[n - skip] = symbol;
            }
            symbol = successor(successors, symbol, random_at(text, (uint64_t)n + 1), symbols);
        }
    }
}

/* About every second symbol is one of the eight favourites of the class. */
static void make_token_class(const struct stream *stream, uint64_t seed, int32_t *out) {
    uint64_t favourites = random_key(seed, FOR_FAVOURITES), texts = random_key(seed, FOR_TEXT);
    int64_t length = stream->dim[0], symbols = stream->i[0];
    for (int64_t sample = 0; sample < stream->count; sample++) {
        uint64_t class = (uint64_t)class_of(seed, sample, stream->i[1]);
        uint64_t text = random_at(texts, (uint64_t)sample);
        for (int64_t n = 0; n < length; n++) {
            uint64_t bits = random_at(text, (uint64_t)n);
            uint64_t favourite = random_at(favourites, class * 8 + (bits >> 1 & 7));
            *out++ =
                bits & 1 ? (int32_t)(favourite % (uint64_t)symbols) : skewed_symbol(bits, symbols);
        }
    }
}

static void make_normal(const struct stream *stream, uint64_t noise, float *out) {
    int64_t values = stream_values(stream) * stream->count;
    for (int64_t n = 0; n < values; n++) {
        out[n] = random_normal(noise, (uint64_t)n);
    }
}

static void make_constant(const struct stream *stream, float *out) {
    int64_t values = stream_values(stream) * stream->count;
    for (int64_t n = 0; n < values; n++) {
        out[n] = stream->f[0];
    }
}

static void make_stream(struct dataset *dataset, int number) {
    const struct stream *stream = &dataset->stream[number];
    void *out = dataset->samples[number];
    uint64_t seed = dataset->seed, noise = random_key(seed, FOR_NOISE + (uint64_t)number);
    switch (stream->generator) {
    case GENERATOR_IMAGE:
    case GENERATOR_PERSONAL:
        make_images(stream, seed, noise, out);
        break;
    case GENERATOR_ROWS:
        make_rows(stream, seed, noise, out);
        break;
    case GENERATOR_LABEL:
        make_labels(stream, seed, out);
        break;
    case GENERATOR_ONE_HOT:
        make_one_hot(stream, seed, out);
        break;
    case GENERATOR_TOKENS:
        make_tokens(stream, seed, 0, out);
        break;
    case GENERATOR_NEXT_TOKENS:
        make_tokens(stream, seed, 1, out);
        break;
    case GENERATOR_TOKEN_CLASS:
        make_token_class(stream, seed, out);
        break;
    case GENERATOR_NORMAL:
        make_normal(stream, noise, out);
        break;
    case GENERATOR_CONSTANT:
        make_constant(stream, out);
        break;
    default:
        break; /* GENERATOR_FILE: read_streams() fills it */
    }
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

static bool read_fully(int descriptor, void *to, int64_t count, int64_t offset) {
    uint8_t *at = to;
    while (count > 0) {
        ssize_t got = pread(descriptor, at, (size_t)count, (off_t)offset);
        if (got <= 0) {
            return false;
        }
        at += got;
        offset += got;
        count -= got;
    }
    return true;
}

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
    if (!read_fully(file->descriptor, head, length, 0)) {
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

static const char *read_column(const struct data_file *file, const struct stream *stream,
                               void *out) {
    if (stream->i[0] >= file->columns || !column_fits(&file->column[stream->i[0]], stream)) {
        return "has no column with the type, shape and length that the plan reads";
    }
    if (!read_fully(file->descriptor, out, (int64_t)stream_bytes(stream),
                    file->column[stream->i[0]].offset)) {
        return "cannot be read";
    }
    if (stream->type != TYPE_INDEX) {
        return NULL;
    }
    const int32_t *index = out;
    int64_t values = stream_values(stream) * stream->count;
    for (int64_t n = 0; n < values; n++) {
        if (index[n] < 0 || index[n] >= stream->i[1]) {
            return "has an index outside the limit of the plan";
        }
    }
    return NULL;
}

/* Reads all columns that streams need; returns part of a sentence where that fails. */
static const char *read_streams(struct dataset *dataset, const char *path) {
    struct data_file file = {.descriptor = open(path, O_RDONLY | O_CLOEXEC)};
    if (file.descriptor < 0) {
        return "cannot be opened";
    }
    const char *fault = read_head(&file);
    for (int n = 0; n < dataset->count && !fault; n++) {
        if (dataset->stream[n].generator == GENERATOR_FILE) {
            fault = read_column(&file, &dataset->stream[n], dataset->samples[n]);
        }
    }
    close(file.descriptor);
    return fault;
}

/* ---- data sets ---- */

static struct dataset *allocate(const struct stream *streams, int count, uint64_t seed) {
    size_t place[STREAMS_MAX], bytes = (size_t)aligned((int64_t)sizeof(struct dataset));
    for (int n = 0; n < count; n++) {
        place[n] = bytes;
        bytes += (size_t)aligned((int64_t)stream_bytes(&streams[n]));
    }
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    struct dataset *dataset = (struct dataset *)memory;
    dataset->count = count;
    dataset->bytes = bytes;
    dataset->seed = seed;
    for (int n = 0; n < count; n++) {
        dataset->stream[n] = streams[n];
        dataset->samples[n] = memory + place[n];
    }
    return dataset;
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

enum dataset_result dataset_open(const struct stream *streams, int count, uint64_t seed,
                                 const char *file, struct dataset **dataset,
                                 char fault[DATA_FAULT_BYTES]) {
    int number = 0;
    bool reads = false;
    *dataset = NULL;
    const char *reason = count < 0 || count > STREAMS_MAX
                             ? "exceeds the limit of 16 streams"
                             : check_streams(streams, count, file, &number);
    if (reason) {
        format_text(fault, DATA_FAULT_BYTES, "stream %d %s", number, reason);
        return DATASET_REFUSED;
    }
    struct dataset *made = allocate(streams, count, seed);
    if (made == NULL) {
        format_text(fault, DATA_FAULT_BYTES, "the data set does not fit in memory");
        return DATASET_NO_MEMORY;
    }
    for (int n = 0; n < count; n++) {
        make_stream(made, n);
        reads |= streams[n].generator == GENERATOR_FILE;
    }
    reason = reads ? read_streams(made, file) : NULL;
    if (reason) {
        format_text(fault, DATA_FAULT_BYTES, "the data file %s", reason);
        dataset_close(made);
        return DATASET_UNREADABLE;
    }
    *dataset = made;
    return DATASET_OPEN;
}

void dataset_close(struct dataset *dataset) {
    if (dataset) {
        munmap(dataset, dataset->bytes);
    }
}

size_t dataset_bytes(const struct dataset *dataset) {
    return dataset->bytes - (size_t)aligned((int64_t)sizeof(struct dataset));
}

int dataset_streams(const struct dataset *dataset) { return dataset->count; }

const struct stream *dataset_stream(const struct dataset *dataset, int number) {
    return &dataset->stream[number];
}

const void *dataset_samples(const struct dataset *dataset, int number) {
    return dataset->samples[number];
}
