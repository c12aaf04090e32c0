/* harvest.c - the weight gradient of a convolution: what every window has met, summed by weight.
 *
 * The one rule: pixels are the depth of the product, so both sides are packed along them, and a
 * tile of dw is finished for a block of pixels before the next tile is begun. */
#include <string.h>

#include "../pool.h"
#include "gemm.h"
#include "products.h"

/* dw(out, depth) = sum over pixels of dy(out, p) window(depth, p). The pixels are the depth of the
 * product here, a block of them at a time: rows of one image, or several whole images where those
 * are small. Threads share either the blocks, each with a sheet of dw to add to the others'
 * afterwards, or the channels, where dw is large and images are few. */
struct harvest {
    struct conv conv;
    struct band band; /* of a block, as far as it lies in one image */
    bool in_place;    /* windows are single pixels: nothing is copied */
    struct slivers cut;
    int64_t channels, targets, depth; /* of one group */
    int64_t bands, together, blocks;  /* bands of an image, or images of a block; all blocks */
    int64_t chunk;                    /* channels copied at once */
    int64_t pixels;                   /* most pixels of a block, those between rows included */
    int sheets, shares;               /* parts by blocks, parts by channels */
    const float *x, *dy;
    float *dw, *spare; /* spare: a sheet for every part by blocks but the first */
    int32_t *offsets;
    char *scratch;
    int64_t slivers_floats, band_floats, image_floats;
};

enum { BLOCK_PIXELS = 256, CHUNK_FLOATS = 32 * 1024 };

static int64_t sheet_floats(const struct harvest *harvest) {
    return pieces(harvest->conv.out * harvest->depth, 16) * 16;
}

static size_t harvest_scratch(const struct harvest *harvest) {
    return lines(harvest->slivers_floats) + lines(harvest->band_floats) +
           lines(harvest->pixels * 16);
}

static void harvest_share(struct harvest *harvest, int threads) {
    harvest->sheets = harvest->shares = 1;
    int64_t pixels = harvest->conv.images * conv_out_area(&harvest->conv);
    if (threads == 1)
        return;
    if (pixels >= 512 * threads || harvest->depth < 64 * threads)
        harvest->sheets = (int)least(threads, harvest->blocks);
    else
        harvest->shares = (int)least(threads, harvest->channels);
}

static void harvest_plan(struct harvest *harvest, const struct conv *conv, int threads) {
    const struct window *window = &conv->window;
    *harvest = (struct harvest){.conv = *conv,
                                .in_place = reads_in_place(window),
                                .channels = conv->in / conv->groups,
                                .targets = conv->out / conv->groups};
    harvest->depth = harvest->channels * conv_taps(conv);
    harvest->cut = slivers_of(harvest->targets);
    struct band one = band_of(window, 1, 1);
    int64_t pitch = harvest->in_place ? window->width : one.pitch;
    int64_t rows = least(window->rows, most(1, BLOCK_PIXELS / pitch));
    harvest->bands = pieces(window->rows, rows);
    rows = pieces(window->rows, harvest->bands);
    harvest->together = 1;
    if (harvest->bands == 1)
        harvest->together = most(1, least(conv->images, BLOCK_PIXELS / (rows * pitch)));
    harvest->blocks = pieces(conv->images, harvest->together) * harvest->bands;
    harvest->band = band_of(window, rows, 1);
    harvest->pixels = harvest->together * rows * pitch;
    int64_t channel = harvest->band.plane * harvest->band.phases_down * harvest->band.phases_across;
    harvest->chunk = most(1, least(harvest->channels,
                                   CHUNK_FLOATS / (channel * harvest->together)));
    harvest->image_floats = band_of(window, rows, harvest->chunk).floats;
    harvest->band_floats = harvest->in_place ? 0 : harvest->image_floats * harvest->together;
    harvest->slivers_floats = harvest->cut.count * 6 * harvest->pixels;
    harvest_share(harvest, threads);
}

static size_t bytes_of(const struct harvest *harvest, int threads) {
    return lines(harvest->depth) +
           (size_t)(harvest->sheets - 1) * sizeof(float) * (size_t)sheet_floats(harvest) +
           (size_t)threads * harvest_scratch(harvest);
}

/* The block that a part works on, and where. */
struct reaping {
    const struct harvest *harvest;
    int64_t group, image, images, row, rows, pitch, pixels; /* pixels: of one image */
    float *slivers, *band, *panel, *dw;
    bool add;
};

/* dy as slivers; between two rows lie as many zeros as the band has pixels to drop. */
static void reap_dy(const struct reaping *at) {
    const struct harvest *harvest = at->harvest;
    const struct conv *conv = &harvest->conv;
    int64_t area = conv_out_area(conv), columns = conv->window.columns;
    int64_t pitch = harvest->pixels, gap = at->pitch - columns;
    for (int64_t n = 0; n < at->images; n++) {
        int64_t plane = (at->image + n) * conv->out + at->group * harvest->targets;
        const float *dy = harvest->dy + plane * area + at->row * columns;
        float *to = at->slivers + n * at->pixels * 6;
        if (gap == 0) {
            struct matrix all = {(float *)dy, area, 1};
            pack_rows(harvest->targets, at->pixels, all, 0, harvest->cut.count, to, pitch);
            continue;
        }
        for (int64_t i = 0; i < at->rows; i++, dy += columns, to += at->pitch * 6) {
            struct matrix row = {(float *)dy, area, 1};
            pack_rows(harvest->targets, columns, row, 0, harvest->cut.count, to, pitch);
            for (int64_t s = 0; s < harvest->cut.count; s++)
                memset(to + (s * pitch + columns) * 6, 0, (size_t)gap * 6 * sizeof(float));
        }
    }
}

/* Sixteen columns of dw, whose windows start at so many floats from each image's own place. */
static void reap_columns(const struct reaping *at, int64_t first, int64_t count,
                         const float *const windows[16], int64_t image_step) {
    const struct harvest *harvest = at->harvest;
    for (int64_t n = 0; n < at->images; n++) {
        const float *column[16];
        for (int k = 0; k < 16; k++)
            column[k] = windows[least(k, count - 1)] + n * image_step;
        pack_sixteen(at->pixels, column, at->panel + n * at->pixels * 16);
    }
    for (int64_t s = 0; s < harvest->cut.count; s++) {
        struct matrix c = {at->dw + sliver_top(&harvest->cut, s) * harvest->depth + first,
                           harvest->depth, 1};
        product_tile(sliver_height(&harvest->cut, s), count, at->images * at->pixels,
                     at->slivers + s * harvest->pixels * 6, at->panel, c, at->add);
    }
}

static void reap_chunk(const struct reaping *at, int64_t channel, int64_t channels) {
    const struct harvest *harvest = at->harvest;
    const struct conv *conv = &harvest->conv;
    int64_t area = conv_area(conv), taps = conv_taps(conv);
    const float *x = harvest->x + (at->image * conv->in + at->group * harvest->channels + channel) *
                                      area;
    int64_t image_step = harvest->in_place ? conv->in * area : harvest->image_floats;
    if (!harvest->in_place)
        for (int64_t n = 0; n < at->images; n++)
            band_copy(&conv->window, &harvest->band, at->row, channels, x + n * conv->in * area,
                      at->band + n * image_step);
    for (int64_t k = 0; k < channels * taps; k += 16) {
        int64_t count = least(16, channels * taps - k);
        const float *windows[16];
        for (int64_t n = 0; n < count; n++)
            windows[n] = harvest->in_place ? x + (k + n) * area + at->row * conv->window.width
                                           : at->band + harvest->offsets[k + n];
        reap_columns(at, channel * taps + k, count, windows, image_step);
    }
}

static void reap_block(struct reaping *at, int64_t block, int64_t first, int64_t last) {
    const struct harvest *harvest = at->harvest;
    const struct window *window = &harvest->conv.window;
    int64_t end;
    at->image = block / harvest->bands * harvest->together;
    at->images = least(harvest->together, harvest->conv.images - at->image);
    share_of(window->rows, (int)(block % harvest->bands), (int)harvest->bands, &at->row, &end);
    at->rows = end - at->row;
    at->pixels = at->rows * at->pitch;
    reap_dy(at);
    for (int64_t c = first; c < last; c += harvest->chunk)
        reap_chunk(at, c, least(harvest->chunk, last - c));
}

static void harvest_part(void *context, int part, int parts, int worker) {
    (void)parts;
    const struct harvest *harvest = context;
    int share = part % harvest->shares, sheet = part / harvest->shares;
    int64_t first, last, block, end;
    share_of(harvest->channels, share, harvest->shares, &first, &last);
    share_of(harvest->blocks, sheet, harvest->sheets, &block, &end);
    char *scratch = harvest->scratch + (size_t)worker * harvest_scratch(harvest);
    struct reaping at = {.harvest = harvest, .slivers = (float *)scratch};
    at.band = at.slivers + lines(harvest->slivers_floats) / sizeof(float);
    at.panel = at.band + lines(harvest->band_floats) / sizeof(float);
    at.pitch = harvest->in_place ? harvest->conv.window.width : harvest->band.pitch;
    float *dw = sheet ? harvest->spare + (sheet - 1) * sheet_floats(harvest) : harvest->dw;
    for (at.group = 0; at.group < harvest->conv.groups; at.group++) {
        at.dw = dw + at.group * harvest->targets * harvest->depth;
        for (int64_t b = block; b < end; b++) {
            at.add = b > block;
            reap_block(&at, b, first, last);
        }
    }
}

static void add_sheets(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct harvest *harvest = context;
    int64_t first, last;
    share_of(harvest->conv.out * harvest->depth, part, parts, &first, &last);
    for (int n = 0; n < harvest->sheets - 1; n++) {
        const float *from = harvest->spare + n * sheet_floats(harvest);
        for (int64_t at = first; at < last; at++)
            harvest->dw[at] += from[at];
    }
}

size_t harvest_workspace(const struct conv *conv, int threads) {
    struct harvest harvest;
    harvest_plan(&harvest, conv, threads);
    return bytes_of(&harvest, threads);
}

void harvest_run(const struct conv *conv, const float *x, const float *dy, float *dw,
                 struct scene *scene) {
    struct harvest harvest;
    int threads = pool_threads(scene->pool);
    harvest_plan(&harvest, conv, threads);
    harvest.x = x, harvest.dy = dy, harvest.dw = dw;
    char *at = scene->workspace;
    harvest.offsets = (int32_t *)at, at += lines(harvest.depth);
    harvest.spare = (float *)at;
    harvest.scratch = (char *)(harvest.spare + (harvest.sheets - 1) * sheet_floats(&harvest));
    int32_t *offset = harvest.offsets;
    for (int64_t c = 0; c < harvest.chunk; c++)
        for (int64_t kh = 0; kh < conv->window.kh; kh++)
            for (int64_t kw = 0; kw < conv->window.kw; kw++)
                *offset++ = (int32_t)tap_offset(&conv->window, &harvest.band, c, kh, kw);
    pool_run(scene->pool, harvest.sheets * harvest.shares, harvest_part, &harvest);
    if (harvest.sheets > 1)
        pool_run(scene->pool, threads, add_sheets, &harvest);
}
