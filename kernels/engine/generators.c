/* generators.c - generates the samples of a stream: pictures, points, labels and texts.
 *
 * The one rule: a sample depends on the seed, its number and its stream only. Pictures, points and
 * texts are easy on purpose (a small model learns them within about twenty steps), because a loss
 * that does not fall must mean that training is broken. */
#include "generators.h"

#include <string.h>

#include "random.h"

enum { GRID = 6, CHANNELS_FOR_ALL = 1 << 20 };

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

/* Samples [first, last) of a stream. */
struct sample_range {
    const struct stream *stream;
    uint64_t seed, noise;
    int64_t first, last;
};

static void make_images(const struct sample_range *range, uint8_t *out) {
    const struct stream *stream = range->stream;
    uint64_t seed = range->seed, noise = range->noise;
    int64_t channels = stream->dim[0], height = stream->dim[1], width = stream->dim[2];
    uint64_t common = random_key(seed, FOR_PICTURE), person = random_key(seed, FOR_PERSON);
    for (int64_t sample = range->first; sample < range->last; sample++) {
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

static void make_rows(const struct sample_range *range, float *out) {
    const struct stream *stream = range->stream;
    uint64_t points = random_key(range->seed, FOR_POINT);
    int64_t values = stream_values(stream);
    for (int64_t sample = range->first; sample < range->last; sample++) {
        uint64_t point = random_at(points, (uint64_t)class_of(range->seed, sample, stream->i[0]));
        uint64_t sample_key = random_at(range->noise, (uint64_t)sample);
        for (uint64_t n = 0; n < (uint64_t)values; n++) {
            *out++ = random_uniform(point, n, 1.5f) + random_uniform(sample_key, n, 0.8f);
        }
    }
}

static void make_labels(const struct sample_range *range, int32_t *out) {
    for (int64_t sample = range->first; sample < range->last; sample++) {
        *out++ = class_of(range->seed, sample, range->stream->i[0]);
    }
}

static void make_one_hot(const struct sample_range *range, float *out) {
    int64_t classes = range->stream->i[0];
    memset(out, 0, (size_t)((range->last - range->first) * classes) * sizeof *out);
    for (int64_t sample = range->first; sample < range->last; sample++, out += classes) {
        out[class_of(range->seed, sample, classes)] = 1.0f;
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
static void make_tokens(const struct sample_range *range, int skip, int32_t *out) {
    uint64_t successors = random_key(range->seed, FOR_SUCCESSORS);
    uint64_t texts = random_key(range->seed, FOR_TEXT);
    int64_t length = range->stream->dim[0], symbols = range->stream->i[0];
    for (int64_t sample = range->first; sample < range->last; sample++, out += length) {
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
static void make_token_class(const struct sample_range *range, int32_t *out) {
    const struct stream *stream = range->stream;
    uint64_t favourites = random_key(range->seed, FOR_FAVOURITES);
    uint64_t texts = random_key(range->seed, FOR_TEXT);
    int64_t length = stream->dim[0], symbols = stream->i[0];
    for (int64_t sample = range->first; sample < range->last; sample++) {
        uint64_t class = (uint64_t)class_of(range->seed, sample, stream->i[1]);
        uint64_t text = random_at(texts, (uint64_t)sample);
        for (int64_t n = 0; n < length; n++) {
            uint64_t bits = random_at(text, (uint64_t)n);
            uint64_t favourite = random_at(favourites, class * 8 + (bits >> 1 & 7));
            *out++ =
                bits & 1 ? (int32_t)(favourite % (uint64_t)symbols) : skewed_symbol(bits, symbols);
        }
    }
}

static void make_normal(const struct sample_range *range, float *out) {
    int64_t values = stream_values(range->stream);
    for (int64_t n = range->first * values; n < range->last * values; n++) {
        *out++ = random_normal(range->noise, (uint64_t)n);
    }
}

static void make_constant(const struct sample_range *range, float *out) {
    int64_t values = stream_values(range->stream) * (range->last - range->first);
    for (int64_t n = 0; n < values; n++) {
        out[n] = range->stream->f[0];
    }
}

void generate_samples(const struct stream *stream, int number, uint64_t seed, int64_t first,
                      int64_t last, void *out) {
    const struct sample_range samples = {
        .stream = stream,
        .seed = seed,
        .noise = random_key(seed, FOR_NOISE + (uint64_t)number),
        .first = first,
        .last = last,
    };
    const struct sample_range *range = &samples;
    switch (stream->generator) {
    case GENERATOR_IMAGE:
    case GENERATOR_PERSONAL:
        make_images(range, out);
        break;
    case GENERATOR_ROWS:
        make_rows(range, out);
        break;
    case GENERATOR_LABEL:
        make_labels(range, out);
        break;
    case GENERATOR_ONE_HOT:
        make_one_hot(range, out);
        break;
    case GENERATOR_TOKENS:
        make_tokens(range, 0, out);
        break;
    case GENERATOR_NEXT_TOKENS:
        make_tokens(range, 1, out);
        break;
    case GENERATOR_TOKEN_CLASS:
        make_token_class(range, out);
        break;
    case GENERATOR_NORMAL:
        make_normal(range, out);
        break;
    case GENERATOR_CONSTANT:
        make_constant(range, out);
        break;
    default:
        break; /* GENERATOR_FILE: dataset.c reads it */
    }
}
