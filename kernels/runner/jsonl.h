/* jsonl.h - writes JSON records, one per line, to a file or to stdout.
 *
 * The one rule: a line is whole or absent. Lines are buffered; jsonl_flush() writes them in one
 * call, and truncates the file to its last whole line when the disk is full. */
#ifndef FARMHAND_JSONL_H
#define FARMHAND_JSONL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../engine/fault.h"
#include "runner.h"

struct jsonl_writer {
    int file;
    char *text;
    size_t size, used;
    size_t line;     /* where the current line begins */
    int64_t written; /* bytes in the file so far; -1: cannot be truncated */
    struct fault *fault;
    char name[48];
};

/* Opens folder/name, truncated or for appending, with a buffer of `room` bytes plus one full
 * line. */
bool jsonl_open(struct jsonl_writer *out, const char *folder, const char *name, bool append,
                size_t room, struct fault *fault);
void jsonl_to_stdout(struct jsonl_writer *out, struct fault *fault);

/* One record: json_begin(), members, json_end(). A member with the name NULL is an element of a
 * list. */
void json_begin(struct jsonl_writer *out, const char *kind);
void json_int(struct jsonl_writer *out, const char *name, int64_t value);
void json_real(struct jsonl_writer *out, const char *name, double value); /* not finite: null */
void json_bool(struct jsonl_writer *out, const char *name, bool value);
void json_null(struct jsonl_writer *out, const char *name);
void json_text(struct jsonl_writer *out, const char *name, const char *text, size_t length);
void json_string(struct jsonl_writer *out, const char *name, const char *text);
void json_raw(struct jsonl_writer *out, const char *name, const char *json);
void json_open(struct jsonl_writer *out, const char *name, char bracket);
void json_close(struct jsonl_writer *out, char bracket);
void json_end(struct jsonl_writer *out);

/* How many more bytes the current line may have. */
size_t json_room(const struct jsonl_writer *out);
/* Writes the buffered lines; false: fault. */
bool jsonl_flush(struct jsonl_writer *out);

/* Writes the fault as the last record, to the file (NULL: none) and to stdout; returns the exit
 * status. */
int report_fault(struct jsonl_writer *out, const struct fault *fault);

#endif
