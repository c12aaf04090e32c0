/* sweep.c - products whose second factor, all windows of an image, is never written down.
 *
 * The one rule: a band of an image is copied once, into the order of window.h, and tiles read their
 * windows from there: where they lie, eight pixels at a time, if few rows of weights will meet
 * them; otherwise sixteen pixels of every window are packed first, without what lies between
 * rows. */
#include "sweep.h"

#include "../pool.h"
#include "products.h"
#include "tile.h"

enum { DEPTH_BLOCK = 256, SLIVER_BLOCK = 24, BAND_FLOATS = 48 * 1024 };
enum { PANEL_FLOATS = DEPTH_BLOCK * 16 + 16 };
enum { DENSE_TARGETS = 48 }; /* so many rows make up for packing windows */

/* ---- where tiles go ---- */

/* Eight pixels of a band. */
struct segment {
    int64_t p, row, column;
};

static struct segment segment_at(const struct sweep *sweep, int64_t number) {
    if (sweep->by_rows) {
        int64_t row = number / sweep->segments_a_row;
        int64_t column = number % sweep->segments_a_row * 8;
        return (struct segment){row * sweep->band.pitch + column, row, column};
    }
    int64_t p = number * 8;
    return (struct segment){p, p / sweep->band.pitch, p % sweep->band.pitch};
}

static int64_t segments_in(const struct sweep *sweep, int64_t rows) {
    if (sweep->by_rows)
        return rows * sweep->segments_a_row;
    return pieces((rows - 1) * sweep->band.pitch + sweep->window.columns, 8);
}

static bool is_whole(const struct sweep *sweep, const struct segment *at, int64_t rows) {
    if (sweep->column_step != 1 || at->row >= rows)
        return false;
    return at->column + 8 <= sweep->window.columns;
}

/* The pixels of a segment that exist, each to its place. */
static void put_some(const struct sweep *sweep, struct segment at, int64_t rows, const float *lane,
                     float *plane, bool add) {
    for (int64_t n = 0; n < 8 && at.row < rows;) {
        int64_t count = least(8 - n, sweep->window.columns - at.column);
        float *to = plane + at.row * sweep->row_step + at.column * sweep->column_step;
        for (int64_t j = 0; j < count; j++) {
            float *one = to + j * sweep->column_step;
            *one = add ? *one + lane[n + j] : lane[n + j];
        }
        if (sweep->by_rows)
            return;
        n += sweep->band.pitch - at.column;
        at.row++, at.column = 0;
    }
}

/* Eight floats of a target plane, of which some take lanes of a half tile. */
struct piece {
    int64_t at; /* in the plane */
    int half;   /* 0 or 8: where in the tile's rows */
    v8i lanes;
};

enum { PIECES_MAX = 4, NOT_IN_PIECES = -1 };

/* Where sixteen pixels lie. */
struct spot {
    struct segment left, right;
    int64_t rows;
    bool whole; /* both halves can be stored as they are */
    int count;  /* of pieces; or NOT_IN_PIECES: pixel by pixel */
    struct piece pieces[PIECES_MAX];
    int64_t rest; /* so many pixels in a row, and nothing else; 0: does not hold */
};

static v8i lanes_from_to(int64_t first, int64_t last) {
    const v8i lane = {0, 1, 2, 3, 4, 5, 6, 7};
    return (lane >= all8i((int32_t)first)) & (lane < all8i((int32_t)last));
}

/* A segment reaches over one end of a row at most, or it is not put in pieces; nor is one whose
 * eight floats reach out of the band, since others may be writing there. */
static void cut_segment(const struct sweep *sweep, struct spot *spot, const struct segment *at,
                        int half) {
    int64_t columns = sweep->window.columns, onward = sweep->band.pitch - at->column;
    int64_t here[2] = {at->row * columns + at->column, (at->row + 1) * columns - onward};
    int64_t from[2] = {0, onward}, until[2] = {least(8, columns - at->column), 8};
    if (onward + sweep->band.pitch < 8 && !sweep->by_rows)
        spot->count = NOT_IN_PIECES;
    for (int n = 0; n < 2 && spot->count != NOT_IN_PIECES; n++) {
        if (at->row + n >= spot->rows || from[n] >= until[n] || (n && sweep->by_rows))
            continue;
        if (here[n] < 0 || here[n] + 8 > spot->rows * columns)
            spot->count = NOT_IN_PIECES;
        else
            spot->pieces[spot->count++] = (struct piece){
                here[n], half, lanes_from_to(from[n], least(until[n], from[n] + columns))};
    }
}

static struct spot spot_at(const struct sweep *sweep, int64_t segment, int64_t rows) {
    struct spot spot = {.rows = rows};
    spot.left = segment_at(sweep, segment), spot.right = segment_at(sweep, segment + 1);
    spot.whole = is_whole(sweep, &spot.left, rows) && is_whole(sweep, &spot.right, rows);
    if (spot.whole)
        return spot;
    if (sweep->column_step != 1 || sweep->row_step != sweep->window.columns) {
        spot.count = NOT_IN_PIECES;
        return spot;
    }
    cut_segment(sweep, &spot, &spot.left, 0);
    if (spot.count != NOT_IN_PIECES)
        cut_segment(sweep, &spot, &spot.right, 8);
    return spot;
}

static void put_pieces(const struct spot *spot, const float *row, float *plane, bool add) {
    for (int n = 0; n < spot->count; n++) {
        const struct piece *piece = &spot->pieces[n];
        float *to = plane + piece->at;
        v8 old = load8(to), fresh = load8(row + piece->half);
        store8(to, select8(piece->lanes, add ? (v8)(old + fresh) : fresh, old));
    }
}

static void put_rest(const float *row, int64_t count, float *to, bool add) {
    for (int64_t n = 0; n < count; n++)
        to[n] = add ? to[n] + row[n] : row[n];
}

static void sweep_tile(const struct sweep *sweep, const struct spot *spot, struct tile *tile,
                       int64_t rows, float *planes) {
    if (spot->whole) {
        tile->to_left = planes + spot->left.row * sweep->row_step + spot->left.column;
        tile->to_right = planes + spot->right.row * sweep->row_step + spot->right.column;
        tile->stride = sweep->target_plane;
        tile_run(tile, rows);
        return;
    }
    float whole[TILE_ROWS * TILE_COLUMNS];
    bool add = tile->add;
    tile->to_left = whole, tile->to_right = whole + 8, tile->stride = TILE_COLUMNS;
    tile->add = false;
    tile_run(tile, rows);
    tile->add = add;
    for (int64_t n = 0; n < rows; n++, planes += sweep->target_plane) {
        const float *row = whole + n * TILE_COLUMNS;
        if (spot->rest) {
            put_rest(row, spot->rest, planes + spot->left.column, add);
        } else if (spot->count != NOT_IN_PIECES) {
            put_pieces(spot, row, planes, add);
        } else {
            put_some(sweep, spot->left, spot->rows, row, planes, add);
            put_some(sweep, spot->right, spot->rows, row + 8, planes, add);
        }
    }
}

/* ---- a block of depth over a band: windows read where they lie ---- */

struct block {
    int64_t group, rows, at, depth, first, last; /* rows of the band; slivers [first, last) */
    const float *band;
    float *target, *panel;
};

static void sweep_slivers(const struct sweep *sweep, const struct block *block,
                          const struct spot *spot, struct tile *tile) {
    const float *packed =
        sweep->packed + (block->group * sweep->cut.count * sweep->depth + block->at) * 6;
    const float *bias = NULL;
    if (sweep->bias && block->at == 0)
        bias = sweep->bias + block->group * sweep->targets;
    tile->depth = block->depth;
    tile->add = block->at > 0;
    for (int64_t s = block->first; s < block->last; s++) {
        int64_t top = sliver_top(&sweep->cut, s);
        tile->a = packed + s * sweep->depth * 6;
        tile->start = bias ? bias + top : NULL;
        sweep_tile(sweep, spot, tile, sliver_height(&sweep->cut, s),
                   block->target + top * sweep->target_plane);
    }
}

static void sweep_lying(const struct sweep *sweep, const struct block *block) {
    int64_t segments = segments_in(sweep, block->rows);
    for (int64_t s = 0; s < segments; s += 2) {
        struct spot spot = spot_at(sweep, s, block->rows);
        struct tile tile = {.offsets = sweep->offsets + block->at};
        tile.left = block->band + spot.left.p;
        tile.right = block->band + spot.right.p;
        if (s + 1 == segments && sweep->by_rows)
            tile.right = tile.left;
        sweep_slivers(sweep, block, &spot, &tile);
    }
}

/* ---- the same, sixteen pixels of every window packed side by side ---- */

/* Pixels that lie side by side in the band, and the lane of the panel where they begin. */
struct run {
    int64_t p, lane;
};

/* Pixels are counted without those between rows; the answer is how many runs there are. */
static int runs_of(const struct sweep *sweep, int64_t pixel, int64_t count, struct run runs[16]) {
    int64_t columns = sweep->window.columns;
    if (sweep->band.pitch == columns) {
        runs[0] = (struct run){pixel, 0};
        return 1;
    }
    int found = 0;
    for (int64_t lane = 0; lane < count; found++) {
        int64_t row = (pixel + lane) / columns, column = (pixel + lane) % columns;
        runs[found] = (struct run){row * sweep->band.pitch + column, lane};
        lane += columns - column;
    }
    return found;
}

/* Each run is copied with what lies behind it, which the run that follows overwrites, if only in
 * the next depth. */
static void pack_runs(const struct sweep *sweep, const struct block *block, const struct run *runs,
                      int count) {
    float *panel = block->panel;
    for (int64_t k = block->at; k < block->at + block->depth; k++, panel += 16) {
        const float *b = block->band + (sweep->offsets ? sweep->offsets[k] : k * sweep->band.plane);
        for (int n = 0; n < count; n++) {
            const float *from = b + runs[n].p;
            float *to = panel + runs[n].lane;
            store8(to, load8(from));
            store8(to + 8, load8(from + 8));
        }
        if (!sweep->offsets)
            __builtin_prefetch(b + runs[0].p + 32); /* no prefetcher follows so many channels */
    }
}

/* Images that are read in place end where they end: their last pixels one by one. */
static void pack_last(const struct sweep *sweep, const struct block *block, int64_t pixel,
                      int64_t count) {
    float *panel = block->panel;
    for (int64_t k = block->at; k < block->at + block->depth; k++, panel += 16)
        for (int64_t n = 0; n < 16; n++)
            panel[n] = n < count ? block->band[k * sweep->band.plane + pixel + n] : 0.0f;
}

static void sweep_dense(const struct sweep *sweep, const struct block *block) {
    int64_t columns = sweep->window.columns, pixels = block->rows * columns;
    for (int64_t pixel = 0; pixel < pixels; pixel += 16) {
        int64_t count = least(16, pixels - pixel);
        struct run runs[16];
        if (count < 16 && !sweep->offsets)
            pack_last(sweep, block, pixel, count);
        else
            pack_runs(sweep, block, runs, runs_of(sweep, pixel, count, runs));
        struct spot spot = {{pixel, 0, pixel}, {pixel + 8, 0, pixel + 8}, block->rows, count == 16,
                            0, {{0}}, count < 16 ? count : 0};
        struct tile tile = {.left = block->panel, .right = block->panel + 8, .step = 16};
        sweep_slivers(sweep, block, &spot, &tile);
    }
}

/* A part is a band of a group of an image, and a share of the slivers. */
static void sweep_part(void *context, int part, int parts, int worker) {
    (void)parts;
    const struct sweep *sweep = context;
    int64_t cut = part % sweep->cuts, number = part / sweep->cuts % sweep->bands;
    int64_t plane = part / sweep->cuts / sweep->bands, group = plane % sweep->groups;
    int64_t row, end, first, last;
    share_of(sweep->window.rows, (int)number, (int)sweep->bands, &row, &end);
    share_of(sweep->cut.count, (int)cut, (int)sweep->cuts, &first, &last);
    if (row == end || first == last)
        return;
    float *scratch = sweep->scratch + worker * sweep->scratch_floats;
    struct block block = {.group = group, .rows = end - row};
    block.band = sweep->source + plane * sweep->channels * sweep->window.height *
                                     sweep->window.width;
    block.target =
        sweep->target + plane * sweep->targets * sweep->target_plane + row * sweep->row_step;
    block.panel = scratch + sweep->scratch_floats - PANEL_FLOATS;
    if (sweep->offsets) {
        band_copy(&sweep->window, &sweep->band, row, sweep->channels, block.band, scratch);
        block.band = scratch;
    } else {
        block.band += row * sweep->window.width;
    }
    for (block.at = 0; block.at < sweep->depth; block.at += DEPTH_BLOCK)
        for (block.first = first; block.first < last; block.first += SLIVER_BLOCK) {
            block.depth = least(DEPTH_BLOCK, sweep->depth - block.at);
            block.last = least(block.first + SLIVER_BLOCK, last);
            if (sweep->dense)
                sweep_dense(sweep, &block);
            else
                sweep_lying(sweep, &block);
        }
}

void sweep_plan(struct sweep *sweep, int threads) {
    const struct window *window = &sweep->window;
    sweep->depth = sweep->channels * window->kh * window->kw;
    sweep->cut = slivers_of(sweep->targets);
    int64_t planes = sweep->images * sweep->groups;
    struct band one = band_of(window, 1, sweep->channels);
    int64_t row_floats = most(1, one.pitch * one.phases_down * one.phases_across * sweep->channels);
    int64_t rows = most(1, BAND_FLOATS / row_floats);
    sweep->bands = least(window->rows, pieces(window->rows, rows));
    if (planes * sweep->bands < 4 * threads && threads > 1)
        sweep->bands = least(window->rows, pieces(4 * threads, planes));
    sweep->cuts = 1;
    if (planes * sweep->bands < threads)
        sweep->cuts = least(sweep->cut.count, pieces(threads, planes * sweep->bands));
    rows = pieces(window->rows, sweep->bands);
    sweep->band = band_of(window, rows, sweep->channels);
    bool unbroken = sweep->column_step == 1 && sweep->row_step == window->columns;
    sweep->in_place = unbroken && reads_in_place(window);
    if (sweep->in_place) {
        sweep->band.pitch = window->width;
        sweep->band.plane = window->height * window->width;
        sweep->scratch_floats = PANEL_FLOATS;
    } else {
        sweep->scratch_floats = pieces(sweep->band.floats, 16) * 16 + PANEL_FLOATS;
    }
    sweep->dense = sweep->in_place || (unbroken && sweep->targets >= DENSE_TARGETS);
    sweep->segments_a_row = pieces(window->columns, 8);
    int64_t linear = pieces((rows - 1) * sweep->band.pitch + window->columns, 8);
    sweep->by_rows = rows * sweep->segments_a_row <= linear;
}

size_t sweep_workspace(const struct sweep *sweep, int threads) {
    return lines(sweep->groups * sweep->cut.count * sweep->depth * 6) + lines(sweep->depth) +
           (size_t)threads * sizeof(float) * (size_t)sweep->scratch_floats;
}

void sweep_settle(struct sweep *sweep, void *workspace) {
    char *at = workspace;
    sweep->packed = (float *)at;
    at += lines(sweep->groups * sweep->cut.count * sweep->depth * 6);
    sweep->offsets = sweep->in_place ? NULL : (int32_t *)at;
    at += lines(sweep->depth);
    sweep->scratch = (float *)at;
    if (!sweep->offsets)
        return;
    int32_t *offset = sweep->offsets;
    for (int64_t c = 0; c < sweep->channels; c++)
        for (int64_t kh = 0; kh < sweep->window.kh; kh++)
            for (int64_t kw = 0; kw < sweep->window.kw; kw++)
                *offset++ = (int32_t)tap_offset(&sweep->window, &sweep->band, c, kh, kw);
}

void sweep_run(struct sweep *sweep, struct pool *pool) {
    pool_run(pool, (int)(sweep->images * sweep->groups * sweep->bands * sweep->cuts), sweep_part,
             sweep);
}
