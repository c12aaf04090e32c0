/* conv_weight_grad.c - the weight gradient of a convolution as a matrix product along the pixels.
 *
 * dw (out, depth) = sum over pixels p of dy (out, p) * window (depth, p), with depth = in * kh * kw
 * per group. The pixels are the depth of the product, so both factors are packed along them, and a
 * tile of dw is finished for a block of pixels before the next tile begins. A block is some rows of
 * one image, or several whole images where those are small.
 *
 * Threads share either the blocks, each summing into a partial dw that is added to the others'
 * afterwards, or the channels, where dw is large and images are few. */
#include <string.h>

#include "../thread_pool.h"
#include "conv.h"
#include "gemm.h"

struct weight_grad {
    struct conv conv;
    struct band band; /* of a block, as far as it lies in one image */
    bool in_place;    /* pointwise: x is read where it is */
    struct row_panels panels;
    int64_t in_channels, out_channels, depth; /* per group */
    int64_t bands;                            /* per image */
    int64_t images_per_block;                 /* more than 1 only where bands is 1 */
    int64_t blocks;                           /* of all images */
    int64_t chunk;                            /* input channels that are packed at once */
    int64_t pixels; /* the most pixels of a block, those between rows included */
    int block_splits,
        channel_splits; /* how many parts the blocks and the channels are split into */
    const float *x, *dy;
    float *dw, *partial; /* partial: one dw for every block split but the first */
    int32_t *tap_offsets;
    char *scratch;
    int64_t packed_dy_floats, band_floats, image_floats; /* image_floats: the band of one image */
};

enum { BLOCK_PIXELS = 256, CHUNK_FLOATS = 32 * 1024, COLUMNS_MIN = 128 };

static int64_t partial_floats(const struct weight_grad *job) {
    return cache_line_floats(job->conv.out * job->depth);
}

static size_t worker_scratch(const struct weight_grad *job) {
    return cache_line_bytes(job->packed_dy_floats) + cache_line_bytes(job->band_floats) +
           cache_line_bytes(job->pixels * NR);
}

/* Blocks are split among the threads, since each split needs a partial dw; channels are split
 * further, as far as every part has enough columns to make up for packing dy again. */
static void choose_splits(struct weight_grad *job, int threads) {
    job->block_splits = job->channel_splits = 1;
    int64_t pixels = job->conv.images * conv_out_area(&job->conv);
    if (threads == 1) {
        return;
    }
    int64_t splits = job->depth / COLUMNS_MIN;
    if (pixels >= 512 * threads || job->depth < 64 * threads) {
        job->block_splits = (int)min_i64(threads, job->blocks);
        splits = max_i64(1, min_i64(splits, PARTS_PER_THREAD));
    } else {
        splits = max_i64(threads, min_i64(splits, threads * PARTS_PER_THREAD));
    }
    job->channel_splits = (int)min_i64(splits, job->in_channels);
}

static void plan_weight_grad(struct weight_grad *job, const struct conv *conv, int threads) {
    const struct window *window = &conv->window;
    *job = (struct weight_grad){.conv = *conv,
                                .in_place = is_pointwise(window),
                                .in_channels = conv->in / conv->groups,
                                .out_channels = conv->out / conv->groups};
    job->depth = job->in_channels * conv_taps(conv);
    job->panels = row_panels_of(job->out_channels);
    struct band one = band_of(window, 1, 1);
    int64_t pitch = job->in_place ? window->width : one.pitch;
    int64_t rows = min_i64(window->rows, max_i64(1, BLOCK_PIXELS / pitch));
    job->bands = div_up(window->rows, rows);
    rows = div_up(window->rows, job->bands);
    job->images_per_block = 1;
    if (job->bands == 1) {
        job->images_per_block = max_i64(1, min_i64(conv->images, BLOCK_PIXELS / (rows * pitch)));
    }
    job->blocks = div_up(conv->images, job->images_per_block) * job->bands;
    job->band = band_of(window, rows, 1);
    job->pixels = job->images_per_block * rows * pitch;
    int64_t channel = job->band.plane * job->band.phases_down * job->band.phases_across;
    job->chunk =
        max_i64(1, min_i64(job->in_channels, CHUNK_FLOATS / (channel * job->images_per_block)));
    job->image_floats = band_of(window, rows, job->chunk).floats;
    job->band_floats = job->in_place ? 0 : job->image_floats * job->images_per_block;
    job->packed_dy_floats = job->panels.count * MR * job->pixels;
    choose_splits(job, threads);
}

/* The block that a worker computes, and its scratch memory. */
struct block {
    const struct weight_grad *job;
    int64_t group, image, images, row, rows, pitch, pixels; /* pixels: of one image */
    float *packed_dy, *band, *column_panel, *dw;
    bool accumulate;
};

/* Packs dy as row panels, with zeros between two rows for the pixels that the band drops. */
static void pack_dy(const struct block *at) {
    const struct weight_grad *job = at->job;
    const struct conv *conv = &job->conv;
    int64_t area = conv_out_area(conv), columns = conv->window.columns;
    int64_t pitch = job->pixels, gap = at->pitch - columns;
    for (int64_t n = 0; n < at->images; n++) {
        int64_t plane = (at->image + n) * conv->out + at->group * job->out_channels;
        const float *dy = job->dy + plane * area + at->row * columns;
        float *to = at->packed_dy + n * at->pixels * MR;
        if (gap == 0) {
            struct matrix all = {(float *)dy, area, 1};
            pack_a(job->out_channels, at->pixels, all, 0, job->panels.count, to, pitch);
            continue;
        }
        for (int64_t i = 0; i < at->rows; i++, dy += columns, to += at->pitch * MR) {
            struct matrix row = {(float *)dy, area, 1};
            pack_a(job->out_channels, columns, row, 0, job->panels.count, to, pitch);
            for (int64_t p = 0; p < job->panels.count; p++) {
                memset(to + (p * pitch + columns) * MR, 0, (size_t)gap * MR * sizeof(float));
            }
        }
    }
}

/* Computes up to NR columns of dw; windows[k] is the input of column first + k in the block's first
 * image, image_stride floats from that in the next. */
static void multiply_columns(const struct block *at, int64_t first, int64_t count,
                             const float *const windows[NR], int64_t image_stride) {
    const struct weight_grad *job = at->job;
    for (int64_t n = 0; n < at->images; n++) {
        const float *column[NR];
        for (int k = 0; k < NR; k++) {
            column[k] = windows[min_i64(k, count - 1)] + n * image_stride;
        }
        pack_b_columns(at->pixels, column, at->column_panel + n * at->pixels * NR);
    }
    for (int64_t p = 0; p < job->panels.count; p++) {
        struct matrix c = {at->dw + panel_first_row(&job->panels, p) * job->depth + first,
                           job->depth, 1};
        multiply_panels(panel_rows(&job->panels, p), count, at->images * at->pixels,
                        at->packed_dy + p * job->pixels * MR, at->column_panel, c, at->accumulate);
    }
}

static void multiply_chunk(const struct block *at, int64_t channel, int64_t channels) {
    const struct weight_grad *job = at->job;
    const struct conv *conv = &job->conv;
    int64_t area = conv_area(conv), taps = conv_taps(conv);
    const float *x =
        job->x + (at->image * conv->in + at->group * job->in_channels + channel) * area;
    int64_t image_stride = job->in_place ? conv->in * area : job->image_floats;
    if (!job->in_place) {
        for (int64_t n = 0; n < at->images; n++) {
            pack_band(&conv->window, &job->band, at->row, channels, x + n * conv->in * area,
                      at->band + n * image_stride);
        }
    }
    for (int64_t k = 0; k < channels * taps; k += NR) {
        int64_t count = min_i64(NR, channels * taps - k);
        const float *windows[NR];
        for (int64_t n = 0; n < count; n++) {
            windows[n] = job->in_place ? x + (k + n) * area + at->row * conv->window.width
                                       : at->band + job->tap_offsets[k + n];
        }
        multiply_columns(at, channel * taps + k, count, windows, image_stride);
    }
}

static void multiply_block(struct block *at, int64_t block, int64_t first, int64_t last) {
    const struct weight_grad *job = at->job;
    const struct window *window = &job->conv.window;
    int64_t end;
    at->image = block / job->bands * job->images_per_block;
    at->images = min_i64(job->images_per_block, job->conv.images - at->image);
    split_range(window->rows, (int)(block % job->bands), (int)job->bands, &at->row, &end);
    at->rows = end - at->row;
    at->pixels = at->rows * at->pitch;
    pack_dy(at);
    for (int64_t c = first; c < last; c += job->chunk) {
        multiply_chunk(at, c, min_i64(job->chunk, last - c));
    }
}

static void weight_grad_part(void *context, int part, int parts, int worker) {
    (void)parts;
    const struct weight_grad *job = context;
    int channel_split = part % job->channel_splits, block_split = part / job->channel_splits;
    int64_t first, last, block, end;
    split_range(job->in_channels, channel_split, job->channel_splits, &first, &last);
    split_range(job->blocks, block_split, job->block_splits, &block, &end);
    char *scratch = job->scratch + (size_t)worker * worker_scratch(job);
    struct block at = {.job = job, .packed_dy = (float *)scratch};
    at.band = at.packed_dy + cache_line_floats(job->packed_dy_floats);
    at.column_panel = at.band + cache_line_floats(job->band_floats);
    at.pitch = job->in_place ? job->conv.window.width : job->band.pitch;
    float *dw = block_split ? job->partial + (block_split - 1) * partial_floats(job) : job->dw;
    for (at.group = 0; at.group < job->conv.groups; at.group++) {
        at.dw = dw + at.group * job->out_channels * job->depth;
        for (int64_t b = block; b < end; b++) {
            at.accumulate = b > block;
            multiply_block(&at, b, first, last);
        }
    }
}

static void add_partial(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct weight_grad *job = context;
    int64_t first, last;
    split_range(job->conv.out * job->depth, part, parts, &first, &last);
    for (int n = 0; n < job->block_splits - 1; n++) {
        const float *partial = job->partial + n * partial_floats(job);
        for (int64_t at = first; at < last; at++) {
            job->dw[at] += partial[at];
        }
    }
}

size_t conv_weight_grad_workspace(const struct conv *conv, int threads) {
    struct weight_grad job;
    plan_weight_grad(&job, conv, threads);
    return cache_line_bytes(job.depth) +
           (size_t)(job.block_splits - 1) * sizeof(float) * (size_t)partial_floats(&job) +
           (size_t)threads * worker_scratch(&job);
}

void conv_weight_grad(const struct conv *conv, const float *x, const float *dy, float *dw,
                      struct exec_context *exec) {
    struct weight_grad job;
    int threads = thread_pool_size(exec->pool);
    plan_weight_grad(&job, conv, threads);
    job.x = x;
    job.dy = dy;
    job.dw = dw;
    char *at = exec->workspace;
    job.tap_offsets = (int32_t *)at;
    at += cache_line_bytes(job.depth);
    job.partial = (float *)at;
    job.scratch = (char *)(job.partial + (job.block_splits - 1) * partial_floats(&job));
    write_tap_offsets(&conv->window, &job.band, job.chunk, job.tap_offsets);
    thread_pool_run(exec->pool, job.block_splits * job.channel_splits, weight_grad_part, &job);
    if (job.block_splits > 1) {
        thread_pool_run(exec->pool, threads, add_partial, &job);
    }
}
