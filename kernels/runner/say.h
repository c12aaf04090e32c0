/* say.h - lines of JSON, to a file or to stdout.
 *
 * The one rule: a line is whole or absent. Lines gather in memory; say_flush() hands them over in
 * one write, and takes back what a full disk tore. */
#ifndef FARMHAND_SAY_H
#define FARMHAND_SAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../engine/fault.h"

struct say {
    int file;
    char *text;
    size_t size, used;
    size_t line;   /* where the line in hand begins */
    int64_t bytes; /* handed over so far; -1 for what cannot be taken back */
    struct fault *fault;
    char name[48];
};

/* Opens folder/name, emptied or to append, with memory for `room` bytes besides one full line. */
bool say_open(struct say *say, const char *folder, const char *name, bool append, size_t room,
              struct fault *fault);
/* The same for stdout. */
void say_aloud(struct say *say, struct fault *fault);

/* One line: begin, members, end. A name of NULL makes an element of a list. */
void say_begin(struct say *say, const char *kind);
void say_int(struct say *say, const char *name, int64_t value);
void say_real(struct say *say, const char *name, double value); /* not finite: null */
void say_flag(struct say *say, const char *name, bool value);
void say_null(struct say *say, const char *name);
void say_text(struct say *say, const char *name, const char *text, size_t length);
void say_word(struct say *say, const char *name, const char *word);
void say_raw(struct say *say, const char *name, const char *json);
void say_open_list(struct say *say, const char *name, char bracket);
void say_close_list(struct say *say, char bracket);
void say_end(struct say *say);

/* Bytes that the line in hand may still take. */
size_t say_room(const struct say *say);
/* Hands over what was said; false: the fault is set. */
bool say_flush(struct say *say);

/* Says the fault as the last line, aloud and to the file (NULL: only aloud); answers its exit. */
int say_fault(struct say *say, const struct fault *fault);

#endif
