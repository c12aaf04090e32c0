/* conv_gemm.c - matrix products whose second factor, the im2col matrix of an image, never exists.
 *
 * The one rule: a band of an image is packed once (window.h), and tiles read their windows from
 * there: in place, eight pixels at a time, if few rows of weights use them; else NR pixels of every
 * window are first packed into a column panel, without the unused pixels between rows. */
#include "conv_gemm.h"

#include "../thread_pool.h"
#include "conv.h"

enum { DEPTH_BLOCK = 256, PANEL_BLOCK = 24, BAND_FLOATS = 48 * 1024 };
enum { COLUMN_PANEL_FLOATS = DEPTH_BLOCK * NR + NR };
enum { PACKING_PAYS = 48 }; /* out_channels that make up for packing windows */

/* ---- where the pixels of a tile are stored ---- */

/* Eight consecutive pixel numbers of a band. */
struct segment {
    int64_t p, row, column;
};

static struct segment segment_at(const struct conv_gemm *job, int64_t number) {
    if (job->segments_by_row) {
        int64_t row = number / job->segments_per_row;
        int64_t column = number % job->segments_per_row * 8;
        return (struct segment){row * job->band.pitch + column, row, column};
    }
    int64_t p = number * 8;
    return (struct segment){p, p / job->band.pitch, p % job->band.pitch};
}

static int64_t segments_in(const struct conv_gemm *job, int64_t rows) {
    if (job->segments_by_row) {
        return rows * job->segments_per_row;
    }
    return div_up((rows - 1) * job->band.pitch + job->window.columns, 8);
}

/* Whether all eight pixels exist and are adjacent in the output. */
static bool is_whole(const struct conv_gemm *job, const struct segment *at, int64_t rows) {
    if (job->output_column != 1 || at->row >= rows) {
        return false;
    }
    return at->column + 8 <= job->window.columns;
}

/* Stores those pixels of a segment that exist, one by one. */
static void store_pixels(const struct conv_gemm *job, struct segment at, int64_t rows,
                         const float *lane, float *plane, bool accumulate) {
    for (int64_t n = 0; n < 8 && at.row < rows;) {
        int64_t count = min_i64(8 - n, job->window.columns - at.column);
        float *to = plane + at.row * job->output_row + at.column * job->output_column;
        for (int64_t j = 0; j < count; j++) {
            float *one = to + j * job->output_column;
            *one = accumulate ? *one + lane[n + j] : lane[n + j];
        }
        if (job->segments_by_row) {
            return;
        }
        n += job->band.pitch - at.column;
        at.row++;
        at.column = 0;
    }
}

/* Eight floats of an output plane, some of which take lanes of half a tile: a masked store. */
struct masked_store {
    int64_t at; /* in the plane */
    int half;   /* 0 or 8: where in the rows of the tile */
    v8i lanes;
};

enum { STORES_MAX = 4, PIXEL_BY_PIXEL = -1 };

/* Where the NR pixels of a tile are stored. */
struct tile_target {
    struct segment left, right;
    int64_t rows;
    bool whole; /* both halves can be stored as they are */
    int count;  /* of masked stores, or PIXEL_BY_PIXEL */
    struct masked_store stores[STORES_MAX];
    int64_t tail; /* only the first `tail` pixels exist, in one run of the output; 0: not so */
};

static v8i lanes_between(int64_t first, int64_t last) {
    const v8i lane = {0, 1, 2, 3, 4, 5, 6, 7};
    return (lane >= splat8i((int32_t)first)) & (lane < splat8i((int32_t)last));
}

/* Adds the masked stores of a segment that crosses at most one end of a row. Others are stored
 * pixel by pixel, and so is a segment whose eight floats reach out of the band, since another
 * worker may be writing there. */
static void add_masked_stores(const struct conv_gemm *job, struct tile_target *target,
                              const struct segment *at, int half) {
    int64_t columns = job->window.columns, to_next_row = job->band.pitch - at->column;
    int64_t where[2] = {at->row * columns + at->column, (at->row + 1) * columns - to_next_row};
    int64_t first[2] = {0, to_next_row}, last[2] = {min_i64(8, columns - at->column), 8};
    if (to_next_row + job->band.pitch < 8 && !job->segments_by_row) {
        target->count = PIXEL_BY_PIXEL;
    }
    for (int n = 0; n < 2 && target->count != PIXEL_BY_PIXEL; n++) {
        if (at->row + n >= target->rows || first[n] >= last[n] || (n && job->segments_by_row)) {
            continue;
        }
        if (where[n] < 0 || where[n] + 8 > target->rows * columns) {
            target->count = PIXEL_BY_PIXEL;
        } else {
            target->stores[target->count++] = (struct masked_store){
                where[n], half, lanes_between(first[n], min_i64(last[n], first[n] + columns))};
        }
    }
}

static struct tile_target target_at(const struct conv_gemm *job, int64_t segment, int64_t rows) {
    struct tile_target target = {.rows = rows};
    target.left = segment_at(job, segment);
    target.right = segment_at(job, segment + 1);
    target.whole = is_whole(job, &target.left, rows) && is_whole(job, &target.right, rows);
    if (target.whole) {
        return target;
    }
    if (job->output_column != 1 || job->output_row != job->window.columns) {
        target.count = PIXEL_BY_PIXEL;
        return target;
    }
    add_masked_stores(job, &target, &target.left, 0);
    if (target.count != PIXEL_BY_PIXEL) {
        add_masked_stores(job, &target, &target.right, 8);
    }
    return target;
}

static void store_masked(const struct tile_target *target, const float *row, float *plane,
                         bool accumulate) {
    for (int n = 0; n < target->count; n++) {
        const struct masked_store *store = &target->stores[n];
        float *to = plane + store->at;
        v8 old = load8(to), value = load8(row + store->half);
        store8(to, select8(store->lanes, accumulate ? (v8)(old + value) : value, old));
    }
}

static void store_tail(const float *row, int64_t count, float *to, bool accumulate) {
    for (int64_t n = 0; n < count; n++) {
        to[n] = accumulate ? to[n] + row[n] : row[n];
    }
}

/* Runs the microkernel and stores its tile into the output planes. */
static void compute_tile(const struct conv_gemm *job, const struct tile_target *target,
                         struct tile *tile, int64_t rows, float *planes) {
    if (target->whole) {
        tile->c_left = planes + target->left.row * job->output_row + target->left.column;
        tile->c_right = planes + target->right.row * job->output_row + target->right.column;
        tile->c_stride = job->output_plane;
        microkernel(tile, rows);
        return;
    }
    float whole[MR * NR];
    bool accumulate = tile->accumulate;
    tile->c_left = whole;
    tile->c_right = whole + 8;
    tile->c_stride = NR;
    tile->accumulate = false;
    microkernel(tile, rows);
    tile->accumulate = accumulate;
    for (int64_t n = 0; n < rows; n++, planes += job->output_plane) {
        const float *row = whole + n * NR;
        if (target->tail) {
            store_tail(row, target->tail, planes + target->left.column, accumulate);
        } else if (target->count != PIXEL_BY_PIXEL) {
            store_masked(target, row, planes, accumulate);
        } else {
            store_pixels(job, target->left, target->rows, row, planes, accumulate);
            store_pixels(job, target->right, target->rows, row + 8, planes, accumulate);
        }
    }
}

/* ---- a block of the depth over a band, windows read in place ---- */

struct block {
    int64_t group, rows, at, depth; /* rows: of the band; at, depth: of the weights */
    int64_t first, last;            /* row panels [first, last) */
    const float *band;
    float *output, *column_panel;
};

static void multiply_row_panels(const struct conv_gemm *job, const struct block *block,
                                const struct tile_target *target, struct tile *tile) {
    const float *packed =
        job->packed_weights + (block->group * job->panels.count * job->depth + block->at) * MR;
    const float *bias = NULL;
    if (job->bias && block->at == 0) {
        bias = job->bias + block->group * job->out_channels;
    }
    tile->depth = block->depth;
    tile->accumulate = block->at > 0;
    for (int64_t p = block->first; p < block->last; p++) {
        int64_t first_row = panel_first_row(&job->panels, p);
        tile->a = packed + p * job->depth * MR;
        tile->bias = bias ? bias + first_row : NULL;
        compute_tile(job, target, tile, panel_rows(&job->panels, p),
                     block->output + first_row * job->output_plane);
    }
}

static void multiply_in_place(const struct conv_gemm *job, const struct block *block) {
    int64_t segments = segments_in(job, block->rows);
    for (int64_t s = 0; s < segments; s += 2) {
        struct tile_target target = target_at(job, s, block->rows);
        struct tile tile = {.b_offsets = job->tap_offsets + block->at};
        tile.b_left = block->band + target.left.p;
        tile.b_right = block->band + target.right.p;
        if (s + 1 == segments && job->segments_by_row) {
            tile.b_right = tile.b_left;
        }
        multiply_row_panels(job, block, &target, &tile);
    }
}

/* ---- the same, with NR pixels of every window packed into a column panel ---- */

/* Adjacent pixels of the band, and the lane of the panel where they begin. */
struct pixel_run {
    int64_t p, lane;
};

/* Divides pixels, counted without those between rows, into runs; returns the number of runs. */
static int find_runs(const struct conv_gemm *job, int64_t pixel, int64_t count,
                     struct pixel_run runs[NR]) {
    int64_t columns = job->window.columns;
    if (job->band.pitch == columns) {
        runs[0] = (struct pixel_run){pixel, 0};
        return 1;
    }
    int run_count = 0;
    for (int64_t lane = 0; lane < count; run_count++) {
        int64_t row = (pixel + lane) / columns, column = (pixel + lane) % columns;
        runs[run_count] = (struct pixel_run){row * job->band.pitch + column, lane};
        lane += columns - column;
    }
    return run_count;
}

/* Every run is copied as NR floats; the next run, or the next depth, overwrites the excess. */
static void pack_runs(const struct conv_gemm *job, const struct block *block,
                      const struct pixel_run *runs, int count) {
    float *panel = block->column_panel;
    for (int64_t k = block->at; k < block->at + block->depth; k++, panel += NR) {
        const float *b =
            block->band + (job->tap_offsets ? job->tap_offsets[k] : k * job->band.plane);
        for (int n = 0; n < count; n++) {
            const float *from = b + runs[n].p;
            float *to = panel + runs[n].lane;
            store8(to, load8(from));
            store8(to + 8, load8(from + 8));
        }
        if (!job->tap_offsets) { /* no hardware prefetcher follows this many planes */
            __builtin_prefetch(b + runs[0].p + 32);
        }
    }
}

/* An image that is read in place has no slack after its end: its last pixels are copied one by
 * one. */
static void pack_last_pixels(const struct conv_gemm *job, const struct block *block, int64_t pixel,
                             int64_t count) {
    float *panel = block->column_panel;
    for (int64_t k = block->at; k < block->at + block->depth; k++, panel += NR) {
        for (int64_t n = 0; n < NR; n++) {
            panel[n] = n < count ? block->band[k * job->band.plane + pixel + n] : 0.0f;
        }
    }
}

static void multiply_packed(const struct conv_gemm *job, const struct block *block) {
    int64_t columns = job->window.columns, pixels = block->rows * columns;
    for (int64_t pixel = 0; pixel < pixels; pixel += NR) {
        int64_t count = min_i64(NR, pixels - pixel);
        struct pixel_run runs[NR];
        if (count < NR && !job->tap_offsets) {
            pack_last_pixels(job, block, pixel, count);
        } else {
            pack_runs(job, block, runs, find_runs(job, pixel, count, runs));
        }
        struct tile_target target = {
            .left = {pixel, 0, pixel},
            .right = {pixel + 8, 0, pixel + 8},
            .rows = block->rows,
            .whole = count == NR,
            .tail = count < NR ? count : 0,
        };
        struct tile tile = {.b_left = block->column_panel};
        multiply_row_panels(job, block, &target, &tile);
    }
}

/* ---- all images ---- */

/* A part is one band of one group of one image, and a range of the row panels. */
static void conv_gemm_part(void *context, int part, int parts, int worker) {
    (void)parts;
    const struct conv_gemm *job = context;
    int64_t split = part % job->weight_splits, number = part / job->weight_splits % job->bands;
    int64_t plane = part / job->weight_splits / job->bands, group = plane % job->groups;
    int64_t row, end, first, last;
    split_range(job->window.rows, (int)number, (int)job->bands, &row, &end);
    split_range(job->panels.count, (int)split, (int)job->weight_splits, &first, &last);
    if (row == end || first == last) {
        return;
    }
    float *scratch = job->scratch + worker * job->scratch_floats;
    struct block block = {.group = group, .rows = end - row};
    block.band = job->input + plane * job->in_channels * job->window.height * job->window.width;
    block.output =
        job->output + plane * job->out_channels * job->output_plane + row * job->output_row;
    block.column_panel = scratch + job->scratch_floats - COLUMN_PANEL_FLOATS;
    if (job->tap_offsets) {
        pack_band(&job->window, &job->band, row, job->in_channels, block.band, scratch);
        block.band = scratch;
    } else {
        block.band += row * job->window.width;
    }
    for (block.at = 0; block.at < job->depth; block.at += DEPTH_BLOCK) {
        for (block.first = first; block.first < last; block.first += PANEL_BLOCK) {
            block.depth = min_i64(DEPTH_BLOCK, job->depth - block.at);
            block.last = min_i64(block.first + PANEL_BLOCK, last);
            if (job->packs_windows) {
                multiply_packed(job, &block);
            } else {
                multiply_in_place(job, &block);
            }
        }
    }
}

void conv_gemm_plan(struct conv_gemm *job, int threads) {
    const struct window *window = &job->window;
    job->depth = job->in_channels * window->kh * window->kw;
    job->panels = row_panels_of(job->out_channels);
    int64_t planes = job->images * job->groups;
    struct band one = band_of(window, 1, job->in_channels);
    int64_t row_floats =
        max_i64(1, one.pitch * one.phases_down * one.phases_across * job->in_channels);
    int64_t rows = max_i64(1, BAND_FLOATS / row_floats);
    job->bands = min_i64(window->rows, div_up(window->rows, rows));
    if (planes * job->bands < PARTS_PER_THREAD * threads && threads > 1) {
        job->bands = min_i64(window->rows, div_up(PARTS_PER_THREAD * threads, planes));
    }
    job->weight_splits = 1;
    if (planes * job->bands < threads) {
        job->weight_splits = min_i64(job->panels.count, div_up(threads, planes * job->bands));
    }
    rows = div_up(window->rows, job->bands);
    job->band = band_of(window, rows, job->in_channels);
    bool contiguous = job->output_column == 1 && job->output_row == window->columns;
    job->in_place = contiguous && is_pointwise(window);
    if (job->in_place) {
        job->band.pitch = window->width;
        job->band.plane = window->height * window->width;
        job->scratch_floats = COLUMN_PANEL_FLOATS;
    } else {
        job->scratch_floats = cache_line_floats(job->band.floats) + COLUMN_PANEL_FLOATS;
    }
    job->packs_windows = job->in_place || (contiguous && job->out_channels >= PACKING_PAYS);
    job->segments_per_row = div_up(window->columns, 8);
    int64_t consecutive = div_up((rows - 1) * job->band.pitch + window->columns, 8);
    job->segments_by_row = rows * job->segments_per_row <= consecutive;
}

static size_t packed_weight_bytes(const struct conv_gemm *job) {
    return cache_line_bytes(job->groups * job->panels.count * job->depth * MR);
}

size_t conv_gemm_workspace(const struct conv_gemm *job, int threads) {
    return packed_weight_bytes(job) + cache_line_bytes(job->depth) +
           (size_t)threads * sizeof(float) * (size_t)job->scratch_floats;
}

void conv_gemm_bind_workspace(struct conv_gemm *job, void *workspace) {
    char *at = workspace;
    job->packed_weights = (float *)at;
    at += packed_weight_bytes(job);
    job->tap_offsets = job->in_place ? NULL : (int32_t *)at;
    at += cache_line_bytes(job->depth);
    job->scratch = (float *)at;
    if (job->tap_offsets) {
        write_tap_offsets(&job->window, &job->band, job->in_channels, job->tap_offsets);
    }
}

void conv_gemm_run(struct conv_gemm *job, struct thread_pool *pool) {
    int64_t parts = job->images * job->groups * job->bands * job->weight_splits;
    thread_pool_run(pool, (int)parts, conv_gemm_part, job);
}
