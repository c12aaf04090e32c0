/* storage.h - files of samples that are read batch by batch, past the page cache.
 *
 * With --input storage a data set is not in memory: the operation load reads its batch from a file
 * in every step. A read is made of whole blocks, as O_DIRECT needs it. */
#ifndef FARMHAND_STORAGE_H
#define FARMHAND_STORAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STORAGE_BLOCK = 4096 };

struct stored_file {
    int descriptor;
    bool direct; /* reads bypass the page cache; else each is dropped from it afterwards */
};

/* Creates an empty file for storage_write(); false: see os_error_text(). */
bool storage_create(struct stored_file *file, const char *path);
bool storage_write(const struct stored_file *file, const void *bytes, size_t count, int64_t offset);

/* Makes the file durable, closes it, and opens it for reading. */
bool storage_finish(struct stored_file *file, const char *path);

/* Opens a file for reading. */
bool storage_open(struct stored_file *file, const char *path);

/* Bytes of the buffer that a read of so many bytes needs. */
size_t storage_buffer_bytes(int64_t count);

/* Reads bytes from any place of a file. The buffer begins at a multiple of STORAGE_BLOCK; returns
 * where in it the bytes are, or NULL: see os_error_text(). */
const uint8_t *storage_read(const struct stored_file *file, uint8_t *buffer, int64_t offset,
                            int64_t count);

#endif
