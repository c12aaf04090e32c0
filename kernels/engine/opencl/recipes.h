/* recipes.h - which kernels do an operation, and with which arguments: the table that device.c reads.
 *
 * HOW TO ADD AN OPERATION. Write its kernel in a file of kernels/opencl/, add a line to the table in
 * recipes.c, and run the tests: they hold it against the CPU backend, whose check() has already made
 * sure of the operands. A line is one launch; several lines of one operation are launched in turn.
 *
 *   OPERATION FILE ENTRY [NAME=VALUE ...] : ARGUMENT ... : SIZE ... [/ GROUP ...]
 *
 * FILE is built with -D NAME=VALUE, and ENTRY launched over SIZE work items (one, two or three
 * numbers, each rounded up to whole groups; the kernel turns away who is too many). A SIZE of 0
 * launches nothing. Without GROUP, groups are 64 items, or 8 x 8. A name with "==" between operands
 * is no -D but a condition: both have to be the same memory, or the backend lacks the operation.
 *
 * ARGUMENTS, as the kernel has them
 *   x0 x1 .. y0 y1 ..  the operation's inputs and outputs; one that is left out is a null pointer
 *   x_ y_              the operand in turn: a line that names one is launched for every operand
 *   s t                memory for in between; s:COUNT says how many floats of it
 *   i: i               an image of n/4 by k pixels, in a product: made here, and the same again
 *   $0 $1 ..           the operation's numbers; 0.5 a number as it stands
 *   grown dropped key fade1 fade2      what the step or a share makes of them: see device.c
 *   anything else is a COUNT, a whole number
 * COUNTS: terms with * / + or - between them, from left to right; / rounds up, and @ multiplies all
 * that stands on its two sides
 *   12                 itself
 *   x0.2               dimension 2; x0.n all values, x0.c those of the last axis, x0.r its rows, x0.p
 *                      those of one channel, x0.a those from axis #0 on, x_.b those of the operands
 *                      before this one
 *   #0 #1 ..           the operation's whole numbers; ?2 is 1 where input 2 is there, else 0
 *   first              1 for the first operand in turn, else 0
 *   MR NR ..           what the file is built with, !MR whether that is 0; GROUP is the usual size
 *                      of a group
 *
 * PRODUCTS. FILE is the word "product", ENTRY says what is transposed (NT; ## as #0 and #1 say), and
 * the arguments are A, B and C. The launches are then those of a way to multiply, which stands in the
 * same table: there a b c are the matrices, m n k lda ldb ldc their sizes. */
#ifndef FARMHAND_RECIPES_H
#define FARMHAND_RECIPES_H

#include "../engine.h"

/* C = op(A) op(B), of m x n values and depth k. */
struct product {
    const struct tensor *a, *b, *c;
    int32_t m, n, k, lda, ldb, ldc;
    bool turned_a, turned_b;
};

/* A line of the table, and whose numbers its words stand for. */
struct recipe {
    const char *line;          /* in the table: ends with a newline */
    const struct op *op;       /* or */
    const struct product *product;
    const char *tuned;         /* NAME=VALUE ... that go before the line's own; "" where none */
    int turn;                  /* of x_ and y_ */
    int group;                 /* what GROUP stands for */
};

/* The first line of that operation (or way), or the next behind `line`; NULL: no more. */
const char *recipe_find(const char *name, const char *line);

/* The first line of an operation, the name that it has in the table, and the NAME=VALUE that its
 * member of a family is built with: relu_forward is function_forward with ACTIVATION=0. */
enum { WORD_BYTES = 64 };
const char *recipe_of(const struct op *op, char name[WORD_BYTES], const char **numbers);

/* Whether the table knows this way to multiply. */
bool recipe_is_way(const char *name);

/* Word number `number` of a line, copied; false where there are fewer. */
bool recipe_word(const char *line, int number, char word[WORD_BYTES]);

/* A COUNT; -1 where it makes no sense. */
int64_t recipe_count(const struct recipe *recipe, const char *word);

/* The operand that a word names, and whether it names one at all. */
bool recipe_operand(const struct recipe *recipe, const char *word, const struct tensor **operand);

/* Finds NAME=VALUE among the tuned ones, then in the line; the value begins there. */
const char *recipe_value(const struct recipe *recipe, const char *name);

/* How often the line is launched: once, or for every operand in turn. */
int recipe_turns(const struct recipe *recipe);

/* The product that a product's line asks for. */
bool recipe_product(const struct recipe *recipe, struct product *product);

#endif
