/* recipes.c - the table of operations, and the few words that it is written in (recipes.h). */
#include "recipes.h"

#ifndef RUNNER_STATIC

#include <string.h>

#include "../text.h"

#define MATRICES "m n k a lda b ldb c ldc"
#define PACKED "MR=6 NR=16 STRIPS=4 PACK_A=1 GX=1 GY=1"
#define HALF "MR=6 NR=16 GX=1 GY=1"
#define WINDOW "#0 #1 #2 #3 #4 #5"
/* Images and weights laid out for conv.cl: rows, values of a row (so many that each tap finds whole
 * vectors there), weights. */
#define ROWS(out) out ".2-1*#3+#1"
#define LONG(out) "#2-1/#4+" out ".3+7/8*8"
#define ROWS_BACK "y0.2+#1-1"
#define LONG_BACK "#2+6+y0.3/8*8"
#define WEIGHTS(in) "y0.1/#0/8*8*#0@" in ".1/#0*#1*#2"

static const char TABLE[] =
    /* functions of each value */
    "function_forward activations.cl activation_forward : y0.n $0 x0 y0 : y0.n\n"
    "function_gradient activations.cl activation_gradient : y0.n $0 x0 x1 y0 : y0.n\n"
    "dropout_forward plumbing.cl dropout : y0.n grown dropped key x0 y0 y1 : y0.n\n"
    "dropout_gradient activations.cl masked : y0.n grown x0 x1 y0 : y0.n\n"

    /* windows, with their image laid out */
    "conv_forward conv.cl lay_out : x0.0*x0.1 x0.2 x0.3 1 1 #5 #6 #4 " ROWS("y0") " " LONG("y0")
    " x0 s:x0.0*x0.1*#4@" ROWS("y0") "@" LONG("y0") " : #4@" LONG("y0") "/8 " ROWS("y0")
    " x0.0*x0.1\n"
    "conv_forward conv.cl lay_out_weights : #0 y0.1/#0 x0.1/#0 #1*#2 0 x1 t:" WEIGHTS("x0")
    " : x0.1/#0*#1*#2 y0.1/#0/8*#0\n"
    "conv_forward conv.cl convolve : x0.0 x0.1 y0.1 #0 y0.2 y0.3 #1 #2 #3 #4 " ROWS("y0") " "
    LONG("y0") " ?2 s t x2 y0 : y0.3/8 y0.2 y0.1/#0/8*#0*y0.0\n"
    "conv_input_gradient conv.cl lay_out : x1.0*x1.1 x1.2 x1.3 #3 #4 #1-1-#5 #2-1-#6 1 " ROWS_BACK
    " " LONG_BACK " x1 s:x1.0*x1.1@" ROWS_BACK "@" LONG_BACK " : " LONG_BACK "/8 " ROWS_BACK
    " x1.0*x1.1\n"
    "conv_input_gradient conv.cl lay_out_weights : #0 y0.1/#0 x1.1/#0 #1*#2 1 x0 t:" WEIGHTS("x1")
    " : x1.1/#0*#1*#2 y0.1/#0/8*#0\n"
    "conv_input_gradient conv.cl convolve : x1.0 x1.1 y0.1 #0 y0.2 y0.3 #1 #2 1 1 " ROWS_BACK " "
    LONG_BACK " 0 s t x2 y0 : y0.3/8 y0.2 y0.1/#0/8*#0*y0.0\n"
    "conv_weight_gradient conv.cl lay_out : x0.0*x0.1 x0.2 x0.3 1 1 #5 #6 #4 " ROWS("x1") " "
    LONG("x1") " x0 s:x0.0*x0.1*#4@" ROWS("x1") "@" LONG("x1") " : #4@" LONG("x1") "/8 "
    ROWS("x1") " x0.0*x0.1\n"
    "conv_weight_gradient conv.cl lay_out : x1.0*x1.1 x1.2 x1.3 1 1 0 0 1 x1.2 x1.3/8*8 x1"
    " t:x1.0*x1.1*x1.2@x1.3/8*8 : x1.3/8 x1.2 x1.0*x1.1\n"
    "conv_weight_gradient conv.cl conv_weight_gradient : x0.0 x0.1 x1.1 #0 x1.2 x1.3/8*8"
    " #1 #2 #3 #4 " ROWS("x1") " " LONG("x1")
    " s t y0 : #1*#2 x0.1/#0/3 x1.1/#0/4*#0 / 1 GROUP/8 1\n"

    /* windows of one pixel: an image is one long row */
    "pixel_forward conv.cl lay_out_weights : #0 y0.1/#0 x0.1/#0 1 0 x1 t:" WEIGHTS("x0")
    " : x0.1/#0 y0.1/#0/8*#0\n"
    "pixel_forward conv.cl convolve : x0.0 x0.1 y0.1 #0 1 x0.p 1 1 1 1 1 x0.p ?2 x0 t x2 y0"
    " : x0.p/8 1 y0.1/#0/8*#0*y0.0 / GROUP/8 1 GROUP/8\n"
    "pixel_input_gradient conv.cl lay_out_weights : #0 y0.1/#0 x1.1/#0 1 1 x0 t:" WEIGHTS("x1")
    " : x1.1/#0 y0.1/#0/8*#0\n"
    "pixel_input_gradient conv.cl convolve : x1.0 x1.1 y0.1 #0 1 y0.p 1 1 1 1 1 y0.p 0 x1 t x2 y0"
    " : y0.p/8 1 y0.1/#0/8*#0*y0.0 / GROUP/8 1 GROUP/8\n"
    "pixel_weight_gradient conv.cl conv_weight_gradient : x0.0 x0.1 x1.1 #0 1 x0.p 1 1 1 1 1 x0.p"
    " x0 x1 y0 : 1 x0.1/#0/3 x1.1/#0/4*#0 / 1 GROUP/8 1\n"

    /* windows of one channel each */
    "depthwise_forward depthwise.cl depthwise_forward : x0.0*x0.1 x0.1 x0.2 x0.3 y0.2 y0.3"
    " #1 #2 #3 #4 #5 #6 ?2 x0 x1 x2 y0 : y0.3/4 y0.2 y0.0*y0.1\n"
    "depthwise_input_gradient depthwise.cl depthwise_input_gradient : y0.0*y0.1 y0.1 y0.2 y0.3"
    " x1.2 x1.3 #1 #2 #3 #4 #5 #6 x0 x1 y0 : y0.3 y0.2 y0.0*y0.1\n"
    "depthwise_weight_gradient depthwise.cl depthwise_weight_gradient : x0.0*x0.1 x0.1 x0.2 x0.3"
    " x1.2 x1.3 #1 #2 #3 #4 #5 #6 x0 x1 y0 : #1*#2 x0.1\n"

    /* pools */
    "max_pool_forward pooling.cl max_pool_forward : x0.0*x0.1 x0.2 x0.3 y0.2 y0.3 " WINDOW
    " x0 y0 y1 : y0.3 y0.2 y0.0*y0.1\n"
    "max_pool_gradient pooling.cl max_pool_gradient : y0.0*y0.1 y0.2 y0.3 x1.2 x1.3 " WINDOW
    " x0 x1 y0 : y0.3 y0.2 y0.0*y0.1\n"
    "avg_pool_forward pooling.cl avg_pool_forward : x0.0*x0.1 x0.2 x0.3 y0.2 y0.3 " WINDOW
    " x0 y0 : y0.3 y0.2 y0.0*y0.1\n"
    "avg_pool_gradient pooling.cl avg_pool_gradient : y0.0*y0.1 y0.2 y0.3 x0.2 x0.3 " WINDOW
    " x0 y0 : y0.3 y0.2 y0.0*y0.1\n"
    "global_avg_pool_forward pooling.cl global_avg_pool_forward : y0.n x0.p x0 y0 : y0.n\n"
    "global_avg_pool_gradient pooling.cl global_avg_pool_gradient : x0.n y0.p x0 y0 : y0.p x0.n\n"

    /* norms */
    "batch_norm_forward norms.cl batch_norm_forward GROUP=GROUP x3==y3 x4==y4"
    " : x0.0 x0.1 x0.p $0 $1 x0 x1 x2 y0 y1 y2 y3 y4 : x0.1*GROUP / GROUP\n"
    "batch_norm_gradient norms.cl batch_norm_gradient GROUP=GROUP"
    " : x0.0 x0.1 x0.p x0 x1 x2 x3 x4 x5 y0 y1 y2 : x0.1*GROUP / GROUP\n"
    "batch_norm_inference norms.cl batch_norm_inference"
    " : y0.n x0.1 x0.p $0 x0 x1 x2 x3 x4 y0 : y0.n\n"

    /* products, and the biases around them */
    "sgemm product ## : x0 x1 y0 :\n"
    "linear_forward product NT : x0 x1 y0 :\n"
    "linear_forward plumbing.cl add_bias : y0.n y0.c 1 x2 y0 : y0.n*?2\n"
    "linear_weight_gradient product TN : x1 x0 y0 :\n"
    "linear_input_gradient product NN : x1 x0 y0 :\n"
    "row_bias_gradient reduce.cl row_bias_gradient : x0.r x0.c x0 y0 : x0.c\n"
    "channel_bias plumbing.cl add_bias x0==y0 : y0.n y0.1 y0.p x1 y0 : y0.n\n"
    "channel_bias_gradient reduce.cl channel_bias_gradient GROUP=GROUP : x0.0 x0.1 x0.p x0 y0"
    " : x0.1*GROUP / GROUP\n"

    /* plumbing */
    "add plumbing.cl add_one : y0.n first x_ y0 : y0.n\n"
    "add_two plumbing.cl add_two : y0.n x0 x1 y0 : y0.n\n"
    "concat plumbing.cl to_part : x_.n x_.a y0.a x_.b x_ y0 : x_.n\n"
    "split plumbing.cl from_part : y_.n y_.a x0.a y_.b x0 y_ : y_.n\n"
    "copy plumbing.cl add_one : y0.n 1 x0 y0 : y0.n\n"

    /* losses and updates */
    "softmax_cross_entropy losses.cl softmax_cross_entropy : x0.r x0.c x0 x1 y0 s:x0.r : x0.r\n"
    "softmax_cross_entropy losses.cl mean_loss : x0.r s y1 : 1 / 1\n"
    "softmax_cross_entropy_gradient losses.cl softmax_cross_entropy_gradient"
    " : x0.r x0.c x0 x1 y0 : x0.r x0.c\n"
    "accuracy losses.cl accuracy : x0.r x0.c x0 x1 y0 : 1 / 1\n"
    "sgd updates.cl sgd x0==y0 : y0.n $0 $1 x0 x1 : y0.n\n"
    "momentum updates.cl momentum x0==y0 x2==y1 : y0.n $0 $1 $2 x0 x1 x2 : y0.n\n"
    "adam updates.cl adam x0==y0 x2==y1 x3==y2"
    " : y0.n $0 $1 $2 $3 fade1 fade2 x0 x1 x2 x3 : y0.n\n"

    /* ways to multiply, with the numbers they have where nobody tuned them */
    "vector sgemm.cl sgemm_vector : " MATRICES " : n/4 m\n"
    "tiled_vector sgemm.cl sgemm_tiled_vector TILE=16 : " MATRICES " : n/4 m / TILE/4 TILE\n"
    "direct sgemm.cl sgemm_direct MR=4 NR=16 GX=1 GY=1 : " MATRICES " : n/NR m/MR / GX GY\n"
    "dots sgemm.cl sgemm_dots MR=3 NC=4 GX=1 GY=1 : " MATRICES " : n/NC m/MR / GX GY\n"
    "packed sgemm.cl pack_a " PACKED " : m k a lda s:m/MR*MR*k*PACK_A : k m/MR*PACK_A\n"
    "packed sgemm.cl pack_b " PACKED " : n k b ldb t:n/NR*NR*k : k n/NR\n"
    "packed sgemm.cl sgemm_packed " PACKED " : m n k s lda t c ldc"
    " : m/MR/STRIPS*PACK_A n/NR / GX GY\n"
    "packed sgemm.cl sgemm_packed " PACKED " : m n k a lda t c ldc"
    " : m/MR/STRIPS*!PACK_A n/NR / GX GY\n"
    "half sgemm.cl pack_a_half " HALF " : m k a lda s:m/MR*MR*k/2 : k m/MR\n"
    "half sgemm.cl pack_b_half " HALF " : n k b ldb t:n/NR*NR*k/2 : k n/NR\n"
    "half sgemm.cl sgemm_half " HALF " : m n k s t c ldc : m/MR n/NR / GX GY\n"
    "image sgemm.cl image_of_b MR=8 : n k b ldb i: : n/4 k\n"
    "image sgemm.cl sgemm_image MR=8 GX=8 GY=1 : m n k a lda i c ldc : n/4 m/MR / GX GY\n";

static const char *next_line(const char *line) { return strchr(line, '\n') + 1; }

const char *recipe_find(const char *name, const char *line) {
    size_t length = strlen(name);
    for (line = line == NULL ? TABLE : next_line(line); *line != '\0'; line = next_line(line)) {
        if (strncmp(line, name, length) == 0 && line[length] == ' ') {
            return line;
        }
    }
    return NULL;
}

bool recipe_is_way(const char *name) {
    const char *line = recipe_find(name, NULL);
    return line != NULL && strncmp(line + strlen(name), " sgemm.cl ", 10) == 0;
}

bool recipe_word(const char *line, int number, char word[WORD_BYTES]) {
    for (; number > 0; number--) {
        line += strcspn(line, " \n");
        if (*line != ' ') {
            return false;
        }
        line++;
    }
    size_t length = strcspn(line, " \n");
    length = length < WORD_BYTES ? length : WORD_BYTES - 1;
    memcpy(word, line, length);
    word[length] = '\0';
    return length > 0;
}

static const char *value_among(const char *text, const char *name) {
    size_t length = strlen(name);
    for (const char *at = text; *at != '\0' && *at != '\n'; at++) {
        if ((at == text || at[-1] == ' ') && strncmp(at, name, length) == 0 && at[length] == '=' &&
            at[length + 1] != '=') {
            return at + length + 1;
        }
    }
    return NULL;
}

const char *recipe_value(const struct recipe *recipe, const char *name) {
    const char *tuned = value_among(recipe->tuned, name);
    return tuned != NULL ? tuned : value_among(recipe->line, name);
}

bool recipe_operand(const struct recipe *recipe, const char *word, const struct tensor **operand) {
    const struct op *op = recipe->op;
    if (op == NULL) {
        const struct product *product = recipe->product;
        *operand = *word == 'a' ? product->a : *word == 'b' ? product->b : product->c;
        return *word >= 'a' && *word <= 'c' && word[1] == '\0';
    }
    bool ins = *word == 'x';
    int count = ins ? op->ins : op->outs;
    int number = word[1] == '_' ? recipe->turn : word[1] - '0';
    *operand = NULL;
    if ((!ins && *word != 'y') || number < 0 || number > OPERANDS_MAX) {
        return false;
    }
    if (number < count) {
        *operand = (ins ? op->in : op->out)[number];
    }
    return true;
}

/* Families whose members are one file, built with a number of their own. */
static const struct {
    char before[12], name[10], numbers[16];
} MEMBERS[] = {
    {"", "relu_", "ACTIVATION=0"},    {"", "relu6_", "ACTIVATION=1"},
    {"", "leaky_", "ACTIVATION=2"},   {"", "tanh_", "ACTIVATION=3"},
    {"", "sigmoid_", "ACTIVATION=4"}, {"", "gelu_", "ACTIVATION=5"},
    {"batch_norm_", "relu_", "AFTER=1"}, {"batch_norm_", "relu6_", "AFTER=2"},
};

/* What kind of windows a convolution has: its own way through the table. */
static const char *windows_of(const struct op *op) {
    bool to_image = strcmp(op->kind->name, "conv_input_gradient") == 0;
    bool forward = strcmp(op->kind->name, "conv_forward") == 0;
    const struct tensor *image = to_image ? op->out[0] : op->in[0];
    const struct tensor *windows = forward ? op->out[0] : op->in[1];
    const int64_t *i = op->i;
    if (i[0] == image->dim[1] && i[0] == windows->dim[1]) {
        return "depthwise";
    }
    bool single = i[1] == 1 && i[2] == 1 && i[3] == 1 && i[4] == 1 && i[5] == 0 && i[6] == 0;
    bool same = image->dim[2] == windows->dim[2] && image->dim[3] == windows->dim[3];
    return single && same && image->dim[2] * image->dim[3] >= 8 ? "pixel" : "conv";
}

const char *recipe_of(const struct op *op, char name[WORD_BYTES], const char **numbers) {
    const char *called = op->kind->name;
    *numbers = "";
    if (strncmp(called, "conv_", 5) == 0) {
        compose(name, WORD_BYTES, "%s%s", windows_of(op), called + 4);
        return recipe_find(name, NULL);
    }
    if (strcmp(called, "add") == 0 && op->ins == 2) {
        called = "add_two";
    }
    compose(name, WORD_BYTES, "%s", called);
    for (size_t i = 0; i < sizeof MEMBERS / sizeof *MEMBERS; i++) {
        const char *before = MEMBERS[i].before, *member = MEMBERS[i].name;
        size_t from = strlen(before), length = strlen(member);
        if (strncmp(called, before, from) == 0 && strncmp(called + from, member, length) == 0) {
            compose(name, WORD_BYTES, "%s%s", from == 0 ? "function_" : before,
                    called + from + length);
            *numbers = MEMBERS[i].numbers;
        }
    }
    return recipe_find(name, NULL);
}

/* Values from an axis on. */
static int64_t values_from(const struct tensor *tensor, int64_t axis) {
    int64_t values = 1;
    for (int64_t at = axis; at < tensor->rank; at++) {
        values *= tensor->dim[at];
    }
    return values;
}

static int64_t values_before(const struct recipe *recipe, char side) {
    int64_t values = 0;
    for (int turn = 0; turn < recipe->turn; turn++) {
        values += values_from((side == 'x' ? recipe->op->in : recipe->op->out)[turn],
                              recipe->op->i[0]);
    }
    return values;
}

/* x0.2 and its like. */
static int64_t size_of(const struct recipe *recipe, const char *word) {
    const struct tensor *tensor = NULL;
    if (!recipe_operand(recipe, word, &tensor) || tensor == NULL || word[2] != '.') {
        return -1;
    }
    int64_t last = tensor->rank > 0 ? tensor->dim[tensor->rank - 1] : 1;
    switch (word[3]) {
    case 'n':
        return tensor->count;
    case 'c':
        return last;
    case 'r':
        return tensor->count / last;
    case 'p':
        return values_from(tensor, 2);
    case 'a':
        return values_from(tensor, recipe->op->i[0]);
    case 'b':
        return values_before(recipe, *word);
    default:
        return word[3] - '0' < tensor->rank ? tensor->dim[word[3] - '0'] : 1;
    }
}

static int64_t whole(const char *digit) {
    int64_t number = 0;
    for (; *digit >= '0' && *digit <= '9' && number < 1 << 24; digit++) {
        number = number * 10 + (*digit - '0');
    }
    return number;
}

static int64_t product_size(const struct product *product, const char *word) {
    switch (*word == 'l' ? word[2] : *word) {
    case 'm':
        return product->m;
    case 'n':
        return product->n;
    case 'k':
        return product->k;
    case 'a':
        return product->lda;
    case 'b':
        return product->ldb;
    default:
        return *word == 'l' ? product->ldc : -1;
    }
}

static int64_t term(const struct recipe *recipe, const char *word) {
    const struct op *op = recipe->op;
    if (*word == '!') {
        return term(recipe, word + 1) == 0;
    }
    const char *value = recipe_value(recipe, word);
    if (*word >= '0' && *word <= '9') {
        return whole(word);
    }
    if (strcmp(word, "GROUP") == 0) {
        return recipe->group;
    }
    if (value != NULL) {
        return whole(value);
    }
    if (op == NULL) {
        return product_size(recipe->product, word);
    }
    switch (*word) {
    case '#':
        return op->i[word[1] - '0'];
    case '?':
        return word[1] - '0' < op->ins && op->in[word[1] - '0'] != NULL;
    case 'f':
        return recipe->turn == 0;
    default:
        return size_of(recipe, word);
    }
}

/* What stands between two @, from left to right. */
static int64_t factor(const struct recipe *recipe, const char *word) {
    int64_t result = 0;
    for (char sign = '+'; sign != '\0' && sign != '@';) {
        char one[WORD_BYTES];
        size_t length = strcspn(word, "*/+-@");
        memcpy(one, word, length);
        one[length] = '\0';
        int64_t value = term(recipe, one);
        if (value < 0 || (sign == '/' && value == 0)) {
            return -1;
        }
        if (sign == '*' && __builtin_mul_overflow(result, value, &result)) {
            return -1;
        }
        if (sign == '/') {
            result = (result + value - 1) / value;
        }
        if (sign == '+' || sign == '-') {
            result += sign == '+' ? value : -value;
        }
        sign = word[length];
        word += length + (sign != '\0');
    }
    return result;
}

int64_t recipe_count(const struct recipe *recipe, const char *word) {
    int64_t result = 1;
    for (bool more = true; more;) {
        int64_t value = factor(recipe, word);
        if (value < 0 || __builtin_mul_overflow(result, value, &result)) {
            return -1;
        }
        word += strcspn(word, "@");
        more = *word == '@';
        word += more;
    }
    return result;
}

int recipe_turns(const struct recipe *recipe) {
    const char *end = next_line(recipe->line);
    const char *ins = strstr(recipe->line, " x_"), *outs = strstr(recipe->line, " y_");
    if (ins != NULL && ins < end) {
        return recipe->op->ins;
    }
    return outs != NULL && outs < end ? recipe->op->outs : 1;
}

static bool turned(const struct recipe *recipe, char letter, int number) {
    return letter == '#' ? recipe->op->i[number] != 0 : letter == 'T';
}

bool recipe_product(const struct recipe *recipe, struct product *product) {
    char letters[WORD_BYTES], a[WORD_BYTES], b[WORD_BYTES], c[WORD_BYTES];
    if (!recipe_word(recipe->line, 2, letters) || !recipe_word(recipe->line, 4, a) ||
        !recipe_word(recipe->line, 5, b) || !recipe_word(recipe->line, 6, c) ||
        !recipe_operand(recipe, a, &product->a) || !recipe_operand(recipe, b, &product->b) ||
        !recipe_operand(recipe, c, &product->c)) {
        return false;
    }
    int64_t lda = size_of(recipe, strcat(a, ".c")), ldb = size_of(recipe, strcat(b, ".c"));
    int64_t ldc = size_of(recipe, strcat(c, ".c"));
    product->turned_a = turned(recipe, letters[0], 0);
    product->turned_b = turned(recipe, letters[1], 1);
    int64_t deep = product->turned_a ? product->a->count / lda : lda;
    product->lda = (int32_t)lda;
    product->ldb = (int32_t)ldb;
    product->ldc = (int32_t)ldc;
    product->m = (int32_t)(product->c->count / ldc);
    product->n = (int32_t)ldc;
    product->k = (int32_t)deep;
    return product->a->count <= INT32_MAX && product->b->count <= INT32_MAX &&
           product->c->count <= INT32_MAX;
}

#endif
