/* storage.c - reads files past the page cache; see storage.h.
 *
 * The one rule: what is read comes from the storage, not from memory that happens to hold a copy.
 * Some file systems refuse O_DIRECT (tmpfs), and some accept and ignore it (f2fs with encryption),
 * so every range is dropped from the page cache after it was read, and nothing is read ahead. */
#define _GNU_SOURCE
#include "storage.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* From linux/fadvise.h; the C libraries do not agree on the function. */
enum { ADVICE_RANDOM = 1, ADVICE_NOT_NEEDED = 4 };

static void advise(const struct stored_file *file, int64_t offset, int64_t count, int advice) {
    syscall(SYS_fadvise64, file->descriptor, offset, count, advice);
}

bool storage_create(struct stored_file *file, const char *path) {
    file->direct = false;
    file->descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    return file->descriptor >= 0;
}

bool storage_write(const struct stored_file *file, const void *bytes, size_t count,
                   int64_t offset) {
    const char *at = bytes;
    while (count > 0) {
        ssize_t piece = pwrite(file->descriptor, at, count, (off_t)offset);
        if (piece <= 0) {
            return false;
        }
        at += piece;
        offset += piece;
        count -= (size_t)piece;
    }
    return true;
}

bool storage_finish(struct stored_file *file, const char *path) {
    bool durable = fsync(file->descriptor) == 0;
    close(file->descriptor);
    return durable && storage_open(file, path);
}

/* Whether the first block can be read with O_DIRECT. */
static bool reads_directly(int descriptor) {
    static uint8_t block[STORAGE_BLOCK] __attribute__((aligned(STORAGE_BLOCK)));
    return descriptor >= 0 && pread(descriptor, block, sizeof block, 0) >= 0;
}

bool storage_open(struct stored_file *file, const char *path) {
    file->descriptor = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    file->direct = reads_directly(file->descriptor);
    if (!file->direct) {
        if (file->descriptor >= 0) {
            close(file->descriptor);
        }
        file->descriptor = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (file->descriptor < 0) {
        return false;
    }
    advise(file, 0, 0, ADVICE_RANDOM);
    advise(file, 0, 0, ADVICE_NOT_NEEDED); /* the whole file, e.g. what was just written */
    return true;
}

size_t storage_buffer_bytes(int64_t count) { return (size_t)count + 2 * STORAGE_BLOCK; }

const uint8_t *storage_read(const struct stored_file *file, uint8_t *buffer, int64_t offset,
                            int64_t count) {
    int64_t before = offset % STORAGE_BLOCK, first = offset - before, wanted = before + count;
    int64_t whole = (wanted + STORAGE_BLOCK - 1) / STORAGE_BLOCK * STORAGE_BLOCK, got = 0;
    while (got < wanted) {
        ssize_t piece =
            pread(file->descriptor, buffer + got, (size_t)(whole - got), (off_t)(first + got));
        if (piece == 0) {
            errno = ENODATA; /* the file became shorter */
        }
        if (piece <= 0) {
            return NULL;
        }
        got += piece;
    }
    advise(file, first, whole, ADVICE_NOT_NEEDED);
    return buffer + before;
}
