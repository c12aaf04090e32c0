/* batch_norm_gradient.c - the way back through a batch norm, and through what follows it.
 *
 * Both gradients need the same two sums over a channel: of what comes back, and of that times the
 * distance of x from its mean. */
#include "batch_norm.h"

/* Sums over dy, and over dy times the distance of x from its mean. */
struct slopes {
    double plain, weighted;
};

/* Only what went through the function behind the norm comes back. */
__attribute__((always_inline)) static inline v8 let_through(v8 dy, v8 x,
                                                            const struct line *line,
                                                            enum after after) {
    if (after == NOTHING)
        return dy;
    v8 y = x * line->slope + line->offset;
    return keep8(after == RELU ? y > 0.0f : (y > 0.0f) & (y < 6.0f), dy);
}

__attribute__((always_inline)) static inline void add_slopes(const float *x, const float *dy,
                                                             int64_t count, float mean,
                                                             const struct line *line,
                                                             enum after after, v8 *plain,
                                                             v8 *weighted) {
    v8 p = all8(0.0f), q = p, w = p, z = p;
    int64_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        v8 x0 = load8(x + i), x1 = load8(x + i + LANES);
        v8 g0 = let_through(load8(dy + i), x0, line, after);
        v8 g1 = let_through(load8(dy + i + LANES), x1, line, after);
        p += g0;
        q += g1;
        w += g0 * (x0 - mean);
        z += g1 * (x1 - mean);
    }
    if (i + LANES <= count) {
        v8 x0 = load8(x + i), g0 = let_through(load8(dy + i), x0, line, after);
        p += g0;
        w += g0 * (x0 - mean);
        i += LANES;
    }
    if (i < count) {
        bool back = count >= LANES;
        v8 x0 = back ? load8(x + count - LANES) : load8_part(x, count, 0.0f);
        v8 g0 = back ? keep8(tail8(count), load8(dy + count - LANES)) : load8_part(dy, count, 0.0f);
        g0 = let_through(g0, x0, line, after);
        q += g0;
        z += g0 * (x0 - mean);
    }
    *plain += p + q;
    *weighted += w + z;
}

static struct slopes slice_slopes(const struct batch_norm *norm, int64_t channel, int64_t slice) {
    v8 plain = all8(0.0f), weighted = plain;
    struct line line = line_at(norm, channel);
    float mean = norm->mean[channel];
    struct piece piece = first_piece(norm, channel, slice);
    do {
        const float *x = norm->x + piece.at, *dy = norm->dy + piece.at;
        if (norm->after == RELU6)
            add_slopes(x, dy, piece.count, mean, &line, RELU6, &plain, &weighted);
        else if (norm->after == RELU)
            add_slopes(x, dy, piece.count, mean, &line, RELU, &plain, &weighted);
        else
            add_slopes(x, dy, piece.count, mean, &line, NOTHING, &plain, &weighted);
    } while (next_piece(norm, &piece));
    return (struct slopes){(double)sum8(plain), (double)sum8(weighted)};
}

static void finish_slopes(const struct batch_norm *norm, int64_t channel,
                          const struct slopes *slopes) {
    norm->dshift[channel] = (float)slopes->plain;
    norm->dscale[channel] = (float)(slopes->weighted * (double)norm->rstd[channel]);
}

/* dx = slope dy + away (x - mean) + all: what x does through the mean and the deviation, too. */
struct back {
    v8 slope, away, all, mean;
};

__attribute__((always_inline)) static inline v8 back8(v8 x, v8 dy, const struct back *back,
                                                      const struct line *line, enum after after) {
    v8 through = let_through(dy, x, line, after);
    return through * back->slope + ((x - back->mean) * back->away + back->all);
}

__attribute__((always_inline)) static inline void back_row(const float *x, const float *dy,
                                                           float *dx, int64_t count,
                                                           const struct back *back,
                                                           const struct line *line,
                                                           enum after after) {
    if (count < LANES) {
        v8 all_x = load8_part(x, count, 0.0f), all_dy = load8_part(dy, count, 0.0f);
        store8_part(dx, back8(all_x, all_dy, back, line, after), count);
        return;
    }
    v8 end = back8(load8(x + count - LANES), load8(dy + count - LANES), back, line, after);
    for (int64_t i = 0; i + LANES <= count; i += LANES)
        store8(dx + i, back8(load8(x + i), load8(dy + i), back, line, after));
    store8(dx + count - LANES, end);
}

static struct back back_of(const struct batch_norm *norm, v8 scale, v8 mean, v8 rstd, v8 dscale,
                           v8 dshift) {
    v8 slope = scale * rstd, share = slope / (float)norm->values;
    return (struct back){slope, -share * rstd * dscale, -share * dshift, mean};
}

static void back_slice(const struct batch_norm *norm, int64_t channel, int64_t slice) {
    struct back back = back_of(norm, all8(norm->scale[channel]), all8(norm->mean[channel]),
                               all8(norm->rstd[channel]), all8(norm->dscale[channel]),
                               all8(norm->dshift[channel]));
    struct line line = line_at(norm, channel);
    struct piece piece = first_piece(norm, channel, slice);
    do {
        const float *x = norm->x + piece.at, *dy = norm->dy + piece.at;
        float *dx = norm->y + piece.at;
        if (norm->after == RELU6)
            back_row(x, dy, dx, piece.count, &back, &line, RELU6);
        else if (norm->after == RELU)
            back_row(x, dy, dx, piece.count, &back, &line, RELU);
        else
            back_row(x, dy, dx, piece.count, &back, &line, NOTHING);
    } while (next_piece(norm, &piece));
}

static void gradient_channels(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct batch_norm *norm = context;
    int64_t channel, last;
    share_of(norm->channels, part, parts, &channel, &last);
    for (; channel < last; channel++) {
        struct slopes all = {0.0, 0.0};
        for (int64_t slice = 0; slice < norm->slices; slice++) {
            struct slopes more = slice_slopes(norm, channel, slice);
            all.plain += more.plain;
            all.weighted += more.weighted;
        }
        finish_slopes(norm, channel, &all);
        for (int64_t slice = norm->slices - 1; slice >= 0 && norm->y; slice--)
            back_slice(norm, channel, slice);
    }
}

static v8 let_through_of(v8 dy, v8 x, const struct line *line, enum after after) {
    return after == RELU6  ? let_through(dy, x, line, RELU6)
           : after == RELU ? let_through(dy, x, line, RELU)
                           : dy;
}

/* Eight channels of one pixel each: their sums, and what goes back where it is asked for. */
static void gradient_eight(const struct batch_norm *norm, int64_t channel, int64_t lanes) {
    struct line line = lines_at(norm, channel, lanes);
    v8 plain = all8(0.0f), weighted = plain, mean = load8_up_to(norm->mean + channel, lanes);
    for (int64_t n = 0; n < norm->samples; n++) {
        int64_t at = n * norm->channels + channel;
        v8 x = load8_up_to(norm->x + at, lanes), dy = load8_up_to(norm->dy + at, lanes);
        dy = let_through_of(dy, x, &line, norm->after);
        plain += dy;
        weighted += dy * (x - mean);
    }
    v8 rstd = load8_up_to(norm->rstd + channel, lanes), dscale = weighted * rstd;
    store8_up_to(norm->dshift + channel, plain, lanes);
    store8_up_to(norm->dscale + channel, dscale, lanes);
    if (norm->y == NULL)
        return;
    v8 scale = load8_up_to(norm->scale + channel, lanes);
    struct back back = back_of(norm, scale, mean, rstd, dscale, plain);
    for (int64_t n = 0; n < norm->samples; n++) {
        int64_t at = n * norm->channels + channel;
        v8 x = load8_up_to(norm->x + at, lanes), dy = load8_up_to(norm->dy + at, lanes);
        dy = let_through_of(dy, x, &line, norm->after);
        store8_up_to(norm->y + at, back8(x, dy, &back, &line, NOTHING), lanes);
    }
}

static void gradient_single_pixels(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct batch_norm *norm = context;
    int64_t channel, last;
    share_of_values(norm->channels, part, parts, &channel, &last);
    for (; channel < last; channel += LANES)
        gradient_eight(norm, channel, last - channel < LANES ? last - channel : LANES);
}

static void gradient_measure(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct batch_norm *norm = context;
    int64_t n, last;
    share_of(norm->channels * norm->slices, part, parts, &n, &last);
    for (; n < last; n++) {
        struct slopes slopes = slice_slopes(norm, n / norm->slices, n % norm->slices);
        memcpy(norm->slice_sums + 3 * n, &slopes, sizeof slopes);
    }
}

static void back_slices(void *context, int part, int parts, int worker) {
    (void)worker;
    const struct batch_norm *norm = context;
    int64_t n, last;
    share_of(norm->channels * norm->slices, part, parts, &n, &last);
    for (; n < last; n++)
        back_slice(norm, n / norm->slices, n % norm->slices);
}

/* --- as operations ------------------------------------------------------------------------- */

/* Fills dscale and dshift, and dx where there is a place for it. */
static void gradient(struct batch_norm *norm, struct scene *scene) {
    norm->slice_sums = scene->workspace;
    int64_t work = norm->op->in[0]->count * 2, slices = norm->channels * norm->slices;
    int threads = spread_parts(scene, slices, work);
    if (norm->pixels == 1) {
        spread(scene, norm->channels, work, gradient_single_pixels, norm);
        return;
    }
    if (threads == 1 || channels_suffice(norm, pool_threads(scene->pool))) {
        spread(scene, norm->channels, work, gradient_channels, norm);
        return;
    }
    spread(scene, slices, work, gradient_measure, norm);
    for (int64_t channel = 0; channel < norm->channels; channel++) {
        struct slopes all = {0.0, 0.0}, more;
        for (int64_t slice = 0; slice < norm->slices; slice++) {
            memcpy(&more, norm->slice_sums + 3 * (channel * norm->slices + slice), sizeof more);
            all.plain += more.plain;
            all.weighted += more.weighted;
        }
        finish_slopes(norm, channel, &all);
    }
    if (norm->y)
        spread(scene, slices, work, back_slices, norm);
}

static void batch_norm_weight_gradient_run(const struct op *op, struct scene *scene) {
    struct batch_norm norm = batch_norm_of(op);
    norm.dy = floats(op->in[1]);
    norm.mean = floats(op->in[2]);
    norm.rstd = floats(op->in[3]);
    norm.dscale = floats(op->out[0]);
    norm.dshift = floats(op->out[1]);
    gradient(&norm, scene);
}

static void batch_norm_input_gradient_run(const struct op *op, struct scene *scene) {
    struct batch_norm norm = batch_norm_of(op);
    norm.dy = floats(op->in[1]);
    norm.scale = floats(op->in[2]);
    norm.mean = floats(op->in[3]);
    norm.rstd = floats(op->in[4]);
    norm.dscale = floats(op->in[5]);
    norm.dshift = floats(op->in[6]);
    norm.y = floats(op->out[0]);
    spread(scene, norm.channels * norm.slices, op->in[0]->count * 2, back_slices, &norm);
}

static void whole_gradient(const struct op *op, struct scene *scene, enum after after) {
    struct batch_norm norm = batch_norm_of(op);
    norm.dy = floats(op->in[1]);
    norm.scale = floats(op->in[2]);
    norm.shift = floats(op->in[3]);
    norm.mean = floats(op->in[4]);
    norm.rstd = floats(op->in[5]);
    norm.dscale = floats(op->out[0]);
    norm.dshift = floats(op->out[1]);
    norm.y = floats(op->out[2]);
    norm.after = after;
    gradient(&norm, scene);
}

static void batch_norm_gradient_run(const struct op *op, struct scene *scene) {
    whole_gradient(op, scene, NOTHING);
}

static void batch_norm_relu_gradient_run(const struct op *op, struct scene *scene) {
    whole_gradient(op, scene, RELU);
}

static void batch_norm_relu6_gradient_run(const struct op *op, struct scene *scene) {
    whole_gradient(op, scene, RELU6);
}

static const char *check_batch_norm_weight_gradient(const struct op *op) {
    const char *fault = check_form(op, "ffff", "ff", 0, 0);
    return fault ? fault : check_channels(op, 2, -1);
}

static const char *check_batch_norm_input_gradient(const struct op *op) {
    const char *fault = check_form(op, "fffffff", "f", 0, 0);
    return fault ? fault : check_channels(op, 2, 0);
}

static const char *check_batch_norm_gradient(const struct op *op) {
    const char *fault = check_form(op, "ffffff", "fff", 0, 0);
    return fault ? fault : check_channels(op, 2, 2);
}

static const struct op_kind batch_norm_weight_gradient = {
    "batch_norm_weight_gradient", check_batch_norm_weight_gradient, batch_norm_workspace, NULL,
    batch_norm_weight_gradient_run};
static const struct op_kind batch_norm_input_gradient = {
    "batch_norm_input_gradient", check_batch_norm_input_gradient, NULL, NULL,
    batch_norm_input_gradient_run};
static const struct op_kind batch_norm_gradient = {
    "batch_norm_gradient", check_batch_norm_gradient, batch_norm_workspace, NULL,
    batch_norm_gradient_run};
static const struct op_kind batch_norm_relu_gradient = {
    "batch_norm_relu_gradient", check_batch_norm_gradient, batch_norm_workspace, NULL,
    batch_norm_relu_gradient_run};
static const struct op_kind batch_norm_relu6_gradient = {
    "batch_norm_relu6_gradient", check_batch_norm_gradient, batch_norm_workspace, NULL,
    batch_norm_relu6_gradient_run};

const struct op_kind *const batch_norm_gradient_kinds[] = {
    &batch_norm_weight_gradient,
    &batch_norm_input_gradient,
    &batch_norm_gradient,
    &batch_norm_relu_gradient,
    &batch_norm_relu6_gradient,
    NULL,
};
