/* conv.c - convolutions as products whose second factor is never written down.
 *
 * The one rule: an image is copied once, band by band, into the order of window.h, and then the
 * inner loop of tile.h reads the windows straight from it. The input gradient is the same sweep
 * over dy with the weights turned round, once for each phase of the stride; the weight gradient
 * is a sum of products along the pixels, which lie in memory order on both sides. */
#include "../pool.h"
#include "check.h"
#include "gemm.h"
#include "ops.h"
#include "products.h"
#include "tile.h"

enum { DEPTH_BLOCK = 256, SLIVER_BLOCK = 24, BAND_FLOATS = 48 * 1024 };
enum { PANEL_FLOATS = DEPTH_BLOCK * 16 + 16 };
enum { DENSE_TARGETS = 48 }; /* so many rows make up for packing windows */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t pieces(int64_t count, int64_t size) { return (count + size - 1) / size; }
static size_t lines(int64_t floats) { return (size_t)pieces(floats, 16) * 64; }

/* ---- what the operands say ---- */

static struct conv conv_of(const struct op *op, const struct tensor *x, const struct tensor *w,
                           const struct tensor *y) {
    return (struct conv){
        .window = {x->dim[2], x->dim[3], y->dim[2], y->dim[3], op->i[1], op->i[2], op->i[3],
                   op->i[4], op->i[5], op->i[6]},
        .images = x->dim[0],
        .in = x->dim[1],
        .out = w->dim[0],
        .groups = op->i[0],
    };
}

static const char *check_window(const struct window *window) {
    const int64_t limit = 4096;
    if (window->kh < 1 || window->kw < 1 || window->sh < 1 || window->sw < 1 ||
        window->kh > limit || window->kw > limit || window->sh > limit || window->sw > limit)
        return "has a kernel or a stride that is out of range";
    if (window->top < 0 || window->left < 0 || window->top > limit || window->left > limit)
        return "has a padding that is out of range";
    if (window->height > INT32_MAX || window->width > INT32_MAX || window->rows > INT32_MAX ||
        window->columns > INT32_MAX)
        return "has an image that is too large";
    int64_t bottom = (window->rows - 1) * window->sh + window->kh - window->top - window->height;
    int64_t right = (window->columns - 1) * window->sw + window->kw - window->left - window->width;
    if (bottom > limit || right > limit)
        return "has an output that reaches beyond its input";
    return NULL;
}

static const char *check_conv(const struct op *op, const struct tensor *x, const struct tensor *w,
                              const struct tensor *y) {
    if (x->rank != 4 || w->rank != 4 || y->rank != 4)
        return "wants images and a weight of four axes";
    struct conv conv = conv_of(op, x, w, y);
    if (conv.groups < 1 || conv.in % conv.groups || conv.out % conv.groups)
        return "has groups that do not divide the channels";
    if (w->dim[1] != conv.in / conv.groups || w->dim[2] != conv.window.kh ||
        w->dim[3] != conv.window.kw)
        return "has a weight that does not fit";
    if (y->dim[0] != conv.images || y->dim[1] != conv.out)
        return "has an output that does not fit";
    const char *fault = check_window(&conv.window);
    if (fault)
        return fault;
    struct band band = band_of(&conv.window, conv.window.rows, 1);
    int64_t padded, windows, parts;
    if (__builtin_mul_overflow(conv.images * conv.groups, most(x->dim[2], y->dim[2]), &parts) ||
        parts >= INT32_MAX)
        return "has too many images";
    if (__builtin_mul_overflow(band.floats, most(conv.in, conv.out), &padded) ||
        padded >= INT32_MAX || !product_fits(y->count, w->dim[1], conv_taps(&conv)) ||
        __builtin_mul_overflow(w->dim[1], conv_taps(&conv), &windows) || windows >= INT32_MAX / 8)
        return "is too large";
    return NULL;
}

static int64_t conv_macs(const struct conv *conv) {
    return conv->images * conv->out * conv_out_area(conv) * (conv->in / conv->groups) *
           conv_taps(conv);
}

/* ---- the sweep: target(rows, pixels) = weights(rows, depth) windows(depth, pixels) ---- */

struct sweep {
    struct window window;
    struct band band;
    int64_t images, groups, channels, targets; /* channels, targets: of one group */
    int64_t depth;                             /* channels x taps */
    struct slivers cut;                        /* of one group's targets */
    const float *source;                       /* (images, groups x channels, height, width) */
    float *target;                             /* the first pixel of the first plane */
    int64_t target_plane, row_step, column_step;
    const float *bias;
    float *packed;    /* slivers of weights, group by group */
    int32_t *offsets; /* of the taps; NULL: tap k is at k * band.plane, and nothing is copied */
    float *scratch;   /* of all workers */
    int64_t scratch_floats, bands, cuts;
    bool in_place; /* windows are single pixels: nothing is copied */
    bool dense;   /* windows are packed, sixteen pixels at a time; otherwise read where they lie */
    bool by_rows; /* segments begin with rows; otherwise they follow one another */
    int64_t segments_a_row;
};

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
            spot->pieces[spot->count++] =
                (struct piece){here[n], half, lanes_from_to(from[n], least(until[n], from[n] + columns))};
    }
}

static struct spot spot_at(const struct sweep *sweep, int64_t segment, int64_t rows) {
    struct spot spot = {segment_at(sweep, segment), segment_at(sweep, segment + 1), rows, 0, 0, {{0}},
                        0};
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

static bool reads_in_place(const struct window *window) {
    return window->kh == 1 && window->kw == 1 && window->sh == 1 && window->sw == 1 &&
           window->top == 0 && window->left == 0 && window->rows == window->height &&
           window->columns == window->width;
}

/* Settles how a sweep is cut; the same for workspace() and for run(). */
static void sweep_plan(struct sweep *sweep, int threads) {
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

static size_t sweep_workspace(const struct sweep *sweep, int threads) {
    return lines(sweep->groups * sweep->cut.count * sweep->depth * 6) + lines(sweep->depth) +
           (size_t)threads * sizeof(float) * (size_t)sweep->scratch_floats;
}

/* Lays the workspace out and writes the offsets of the taps down. */
static void sweep_settle(struct sweep *sweep, void *workspace) {
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

static void sweep_run(struct sweep *sweep, struct pool *pool) {
    pool_run(pool, (int)(sweep->images * sweep->groups * sweep->bands * sweep->cuts), sweep_part,
             sweep);
}

/* ---- forward ---- */

static const char *forward_check(const struct op *op) {
    if (op->ins != 2 && op->ins != 3)
        return "has too few or too many operands";
    bool biased = op->ins == 3 && op->in[2];
    struct op form = *op;
    form.ins = biased ? 3 : 2;
    const char *fault = check_form(&form, biased ? "fff" : "ff", "f", 7, 0);
    if (!fault)
        fault = check_conv(op, op->in[0], op->in[1], op->out[0]);
    if (!fault && biased && op->in[2]->count != op->out[0]->dim[1])
        fault = "has a bias that does not fit";
    return fault;
}

static struct conv forward_conv(const struct op *op) {
    return conv_of(op, op->in[0], op->in[1], op->out[0]);
}

static struct sweep forward_sweep(const struct conv *conv, int threads) {
    struct sweep sweep = {.window = conv->window,
                          .images = conv->images,
                          .groups = conv->groups,
                          .channels = conv->in / conv->groups,
                          .targets = conv->out / conv->groups,
                          .target_plane = conv_out_area(conv),
                          .row_step = conv->window.columns,
                          .column_step = 1};
    sweep_plan(&sweep, threads);
    return sweep;
}

static size_t forward_workspace(const struct op *op, int threads) {
    struct conv conv = forward_conv(op);
    if (is_depthwise(&conv))
        return depthwise_workspace(&conv, threads);
    struct sweep sweep = forward_sweep(&conv, threads);
    return sweep_workspace(&sweep, threads);
}

static int64_t forward_macs(const struct op *op) {
    struct conv conv = forward_conv(op);
    return conv_macs(&conv);
}

struct packing {
    const struct sweep *sweep;
    const struct conv *conv;
    const float *w;
    int64_t down, across; /* of the phase, for the input gradient */
};

static void pack_forward(void *context, int part, int parts, int worker) {
    (void)worker;
    struct packing *job = context;
    const struct sweep *sweep = job->sweep;
    int64_t first, last;
    share_of(sweep->groups * sweep->cut.count, part, parts, &first, &last);
    for (int64_t s = first; s < last; s++) {
        int64_t group = s / sweep->cut.count, sliver = s % sweep->cut.count;
        struct matrix w = {(float *)job->w + group * sweep->targets * sweep->depth, sweep->depth, 1};
        pack_rows(sweep->targets, sweep->depth, w, sliver, sliver + 1,
                  sweep->packed + group * sweep->cut.count * sweep->depth * 6, sweep->depth);
    }
}

static void forward_run(const struct op *op, struct scene *scene) {
    struct conv conv = forward_conv(op);
    const float *bias = op->ins == 3 && op->in[2] ? floats(op->in[2]) : NULL;
    if (is_depthwise(&conv)) {
        depthwise_forward(&conv, floats(op->in[0]), floats(op->in[1]), bias, floats(op->out[0]),
                          scene);
        return;
    }
    struct sweep sweep = forward_sweep(&conv, pool_threads(scene->pool));
    sweep.source = floats(op->in[0]);
    sweep.target = floats(op->out[0]);
    sweep.bias = bias;
    sweep_settle(&sweep, scene->workspace);
    struct packing packing = {&sweep, &conv, floats(op->in[1]), 0, 0};
    pool_run(scene->pool, pool_threads(scene->pool), pack_forward, &packing);
    sweep_run(&sweep, scene->pool);
}

const struct op_kind conv_forward = {"conv_forward", forward_check, forward_workspace, forward_macs,
                                     forward_run};

/* ---- input gradient ---- */

/* Along one axis: the pixels h of dx, 0 <= h < size, with (h + pad) % stride == phase. */
static void phase_along(int64_t size, int64_t pad, int64_t stride, int64_t phase, int64_t kernel,
                        int64_t *taps, int64_t *count, int64_t *first, int64_t *new_pad) {
    int64_t start = phase >= pad ? 0 : (pad - phase + stride - 1) / stride;
    *taps = phase < kernel ? (kernel - phase + stride - 1) / stride : 0;
    *first = start * stride + phase - pad;
    *count = *first < size ? (size - *first + stride - 1) / stride : 0;
    *new_pad = *taps - 1 - start;
}

struct phase_of_input phase_of_input(const struct window *window, int64_t down, int64_t across) {
    struct phase_of_input phase = {
        .window = {.height = window->rows, .width = window->columns, .sh = 1, .sw = 1}};
    phase_along(window->height, window->top, window->sh, down, window->kh, &phase.window.kh,
                &phase.window.rows, &phase.first_h, &phase.window.top);
    phase_along(window->width, window->left, window->sw, across, window->kw, &phase.window.kw,
                &phase.window.columns, &phase.first_w, &phase.window.left);
    return phase;
}

static bool has_pixels(const struct phase_of_input *phase) {
    return phase->window.rows > 0 && phase->window.columns > 0;
}

static struct conv input_conv(const struct op *op) {
    return conv_of(op, op->out[0], op->in[0], op->in[1]);
}

static const char *input_check(const struct op *op) {
    const char *fault = check_form(op, "ff", "f", 7, 0);
    return fault ? fault : check_conv(op, op->out[0], op->in[0], op->in[1]);
}

static int64_t input_macs(const struct op *op) {
    struct conv conv = input_conv(op);
    return conv_macs(&conv);
}

static struct sweep input_sweep(const struct conv *conv, const struct phase_of_input *phase,
                                int threads) {
    struct sweep sweep = {.window = phase->window,
                          .images = conv->images,
                          .groups = conv->groups,
                          .channels = conv->out / conv->groups,
                          .targets = conv->in / conv->groups,
                          .target_plane = conv_area(conv),
                          .row_step = conv->window.width * conv->window.sh,
                          .column_step = conv->window.sw};
    sweep_plan(&sweep, threads);
    return sweep;
}

static size_t input_workspace(const struct op *op, int threads) {
    struct conv conv = input_conv(op);
    if (is_depthwise(&conv))
        return depthwise_workspace(&conv, threads);
    size_t largest = 0;
    for (int64_t down = 0; down < least(conv.window.sh, conv.window.kh); down++)
        for (int64_t across = 0; across < least(conv.window.sw, conv.window.kw); across++) {
            struct phase_of_input phase = phase_of_input(&conv.window, down, across);
            if (!has_pixels(&phase))
                continue;
            struct sweep sweep = input_sweep(&conv, &phase, threads);
            size_t bytes = sweep_workspace(&sweep, threads);
            largest = bytes > largest ? bytes : largest;
        }
    return largest;
}

/* One tap of up to six channels of the input. */
static void pack_tap(const float *tap, int64_t taps, int64_t count, float *to) {
    if (count == 6) {
        for (int n = 0; n < 6; n++)
            to[n] = tap[n * taps];
        return;
    }
    for (int64_t n = 0; n < count; n++)
        to[n] = tap[n * taps];
    for (int64_t n = count; n < 6; n++)
        to[n] = 0.0f;
}

/* Weights turned: targets are the input's channels, the depth is (output channel, taps backwards). */
static void pack_turned_sliver(const struct packing *job, int64_t group, int64_t sliver, float *to) {
    const struct sweep *sweep = job->sweep;
    const struct window *whole = &job->conv->window, *window = &sweep->window;
    int64_t top = sliver_top(&sweep->cut, sliver), count = sliver_height(&sweep->cut, sliver);
    int64_t taps = conv_taps(job->conv);
    const float *w = job->w + (group * sweep->channels * sweep->targets + top) * taps;
    for (int64_t o = 0; o < sweep->channels; o++, w += sweep->targets * taps)
        for (int64_t th = window->kh - 1; th >= 0; th--) {
            const float *row = w + (job->down + th * whole->sh) * whole->kw + job->across;
            for (int64_t tw = window->kw - 1; tw >= 0; tw--, to += 6)
                pack_tap(row + tw * whole->sw, taps, count, to);
        }
}

static void pack_turned(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct packing *job = context;
    const struct sweep *sweep = job->sweep;
    int64_t first, last;
    share_of(sweep->groups * sweep->cut.count, part, parts, &first, &last);
    for (int64_t s = first; s < last; s++) {
        int64_t group = s / sweep->cut.count, sliver = s % sweep->cut.count;
        float *to = sweep->packed + group * sweep->cut.count * sweep->depth * 6;
        struct matrix w = {(float *)job->w + group * sweep->channels * sweep->targets, 1,
                           sweep->targets};
        if (conv_taps(job->conv) == 1)
            pack_rows(sweep->targets, sweep->depth, w, sliver, sliver + 1, to, sweep->depth);
        else
            pack_turned_sliver(job, group, sliver, to + sliver * sweep->depth * 6);
    }
}

struct clearing {
    float *data;
    int64_t count;
};

static void clear_part(void *context, int part, int parts, int worker) {
    (void)worker;
    struct clearing *job = context;
    int64_t first, last;
    share_of(job->count, part, parts, &first, &last);
    memset(job->data + first, 0, (size_t)(last - first) * sizeof(float));
}

static void input_run(const struct op *op, struct scene *scene) {
    struct conv conv = input_conv(op);
    int threads = pool_threads(scene->pool);
    if (is_depthwise(&conv)) {
        depthwise_input_gradient(&conv, floats(op->in[0]), floats(op->in[1]), floats(op->out[0]),
                                 scene);
        return;
    }
    if (conv.window.sh > conv.window.kh || conv.window.sw > conv.window.kw) {
        struct clearing all = {floats(op->out[0]), op->out[0]->count};
        pool_run(scene->pool, threads, clear_part, &all);
    }
    for (int64_t down = 0; down < least(conv.window.sh, conv.window.kh); down++)
        for (int64_t across = 0; across < least(conv.window.sw, conv.window.kw); across++) {
            struct phase_of_input phase = phase_of_input(&conv.window, down, across);
            if (!has_pixels(&phase))
                continue;
            struct sweep sweep = input_sweep(&conv, &phase, threads);
            sweep.source = floats(op->in[1]);
            sweep.target =
                floats(op->out[0]) + phase.first_h * conv.window.width + phase.first_w;
            sweep_settle(&sweep, scene->workspace);
            struct packing packing = {&sweep, &conv, floats(op->in[0]), down, across};
            pool_run(scene->pool, threads, pack_turned, &packing);
            sweep_run(&sweep, scene->pool);
        }
}

const struct op_kind conv_input_gradient = {"conv_input_gradient", input_check, input_workspace,
                                            input_macs, input_run};

/* ---- weight gradient ---- */

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
    int64_t bands, together, blocks;  /* bands of an image, or images of a block; blocks of a group */
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

static size_t harvest_workspace(const struct harvest *harvest, int threads) {
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
        const float *dy = harvest->dy + ((at->image + n) * conv->out + at->group * harvest->targets) *
                                            area + at->row * columns;
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

static struct conv weight_conv(const struct op *op) {
    return conv_of(op, op->in[0], op->out[0], op->in[1]);
}

static const char *weight_check(const struct op *op) {
    const char *fault = check_form(op, "ff", "f", 7, 0);
    return fault ? fault : check_conv(op, op->in[0], op->out[0], op->in[1]);
}

static int64_t weight_macs(const struct op *op) {
    struct conv conv = weight_conv(op);
    return conv_macs(&conv);
}

static size_t weight_workspace(const struct op *op, int threads) {
    struct conv conv = weight_conv(op);
    if (is_depthwise(&conv))
        return depthwise_workspace(&conv, threads);
    struct harvest harvest;
    harvest_plan(&harvest, &conv, threads);
    return harvest_workspace(&harvest, threads);
}

static void weight_run(const struct op *op, struct scene *scene) {
    struct conv conv = weight_conv(op);
    int threads = pool_threads(scene->pool);
    if (is_depthwise(&conv)) {
        depthwise_weight_gradient(&conv, floats(op->in[0]), floats(op->in[1]), floats(op->out[0]),
                                  scene);
        return;
    }
    struct harvest harvest;
    harvest_plan(&harvest, &conv, threads);
    harvest.x = floats(op->in[0]), harvest.dy = floats(op->in[1]), harvest.dw = floats(op->out[0]);
    char *at = scene->workspace;
    harvest.offsets = (int32_t *)at, at += lines(harvest.depth);
    harvest.spare = (float *)at;
    harvest.scratch = (char *)(harvest.spare + (harvest.sheets - 1) * sheet_floats(&harvest));
    int32_t *offset = harvest.offsets;
    for (int64_t c = 0; c < harvest.chunk; c++)
        for (int64_t kh = 0; kh < conv.window.kh; kh++)
            for (int64_t kw = 0; kw < conv.window.kw; kw++)
                *offset++ = (int32_t)tap_offset(&conv.window, &harvest.band, c, kh, kw);
    pool_run(scene->pool, harvest.sheets * harvest.shares, harvest_part, &harvest);
    if (harvest.sheets > 1)
        pool_run(scene->pool, threads, add_sheets, &harvest);
}

const struct op_kind conv_weight_gradient = {"conv_weight_gradient", weight_check, weight_workspace,
                                             weight_macs, weight_run};

/* ---- bias of channels ---- */

static const char *channels_check(const struct tensor *y, const struct tensor *b) {
    if (y->rank < 2)
        return "wants channels on its second axis";
    return b->count == y->dim[1] ? NULL : "has a bias that does not fit";
}

static const char *bias_check(const struct op *op) {
    const char *fault = check_form(op, "ff", "f", 0, 0);
    if (!fault && !same_shape(op->in[0], op->out[0]))
        fault = "has an output that does not fit";
    return fault ? fault : channels_check(op->in[0], op->in[1]);
}

static void bias_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct op *op = context;
    const struct tensor *y = op->in[0];
    int64_t channels = y->dim[1], planes = y->dim[0] * channels, area = y->count / planes;
    int64_t first, last;
    share_of(planes, part, parts, &first, &last);
    for (int64_t plane = first; plane < last; plane++) {
        float b = floats(op->in[1])[plane % channels];
        const float *from = floats(y) + plane * area;
        float *to = floats(op->out[0]) + plane * area;
        for (int64_t at = 0; at < area; at++)
            to[at] = from[at] + b;
    }
}

static void bias_run(const struct op *op, struct scene *scene) {
    pool_run(scene->pool, pool_threads(scene->pool), bias_part, (void *)op);
}

const struct op_kind channel_bias = {"channel_bias", bias_check, NULL, NULL, bias_run};

static const char *bias_gradient_check(const struct op *op) {
    const char *fault = check_form(op, "f", "f", 0, 0);
    return fault ? fault : channels_check(op->in[0], op->out[0]);
}

static float sum_of(const float *x, int64_t count) {
    v8 sums[4] = {all8(0), all8(0), all8(0), all8(0)};
    int64_t at = 0;
    for (; at + 32 <= count; at += 32)
        for (int n = 0; n < 4; n++)
            sums[n] += load8(x + at + 8 * n);
    float rest = 0.0f;
    for (; at < count; at++)
        rest += x[at];
    return sum8((sums[0] + sums[1]) + (sums[2] + sums[3])) + rest;
}

static void bias_gradient_part(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct op *op = context;
    const struct tensor *dy = op->in[0];
    int64_t channels = dy->dim[1], area = dy->count / (dy->dim[0] * channels), first, last;
    share_of(channels, part, parts, &first, &last);
    for (int64_t c = first; c < last; c++) {
        float sum = 0.0f;
        for (int64_t n = 0; n < dy->dim[0]; n++)
            sum += sum_of(floats(dy) + (n * channels + c) * area, area);
        floats(op->out[0])[c] = sum;
    }
}

static void bias_gradient_run(const struct op *op, struct scene *scene) {
    pool_run(scene->pool, pool_threads(scene->pool), bias_gradient_part, (void *)op);
}

const struct op_kind channel_bias_gradient = {"channel_bias_gradient", bias_gradient_check, NULL,
                                              NULL, bias_gradient_run};
