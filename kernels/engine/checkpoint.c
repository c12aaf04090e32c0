/* checkpoint.c - see checkpoint.h. */
#define _GNU_SOURCE
#include "checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "os.h"

enum { HEAD_BYTES = 384, PARTS = 3 };

static const char VERSION[] = "farmhand-checkpoint 1 ", BESIDE[] = ".new";

static const enum arena SAVED[] = {ARENA_PARAMETER, ARENA_STATE};

struct part {
    void *bytes;
    size_t count;
};

static void list_parts(const struct executor *executor, struct checkpoint_record record,
                       struct part part[PARTS]) {
    part[0] = (struct part){record.bytes, record.count};
    for (int i = 1; i < PARTS; i++) {
        enum arena arena = SAVED[i - 1];
        part[i] = (struct part){executor->arena[arena], executor->plan->arena[arena]};
    }
}

#if defined(__aarch64__)
#define ARCHITECTURE "arm64"
#else
#define ARCHITECTURE "x86_64"
#endif

/* The line of text up to the step: what has to be the same in the run that continues. */
static void format_identity(const struct executor *executor, size_t record, char head[HEAD_BYTES]) {
    const struct plan *plan = executor->plan;
    format_text(head, HEAD_BYTES, "%s%s %s %s %d %llx %llu %llu %llu", VERSION, plan->digest,
                ARCHITECTURE, plan->opencl ? "opencl" : "cpu", plan->threads,
                (unsigned long long)plan->hash, (unsigned long long)record,
                (unsigned long long)plan->arena[ARENA_PARAMETER],
                (unsigned long long)plan->arena[ARENA_STATE]);
}

static bool write_all(int file, const void *bytes, size_t count) {
    const char *at = bytes;
    while (count > 0) {
        ssize_t written = write(file, at, count);
        if (written < 0 && errno != EINTR) {
            return false;
        }
        at += written > 0 ? written : 0;
        count -= written > 0 ? (size_t)written : 0;
    }
    return true;
}

static bool read_all(int file, void *bytes, size_t count) {
    char *at = bytes;
    while (count > 0) {
        ssize_t got = read(file, at, count);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return false;
        }
        at += got > 0 ? got : 0;
        count -= got > 0 ? (size_t)got : 0;
    }
    return true;
}

/* Opens the folder that a file is in; -1: it cannot be written to. */
static int open_folder_of(const char *path) {
    char folder[PATH_BYTES];
    format_text(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    memcpy(slash == NULL ? folder : slash + 1, ".", 2); /* "/" has to stay what it is */
    return access(folder, W_OK) == 0 ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
}

bool checkpoint_open(const char *path, struct fault *fault) {
    if (strlen(path) + sizeof BESIDE > PATH_BYTES) {
        return fault_set(fault, STATUS_IO, "the path of the checkpoint is too long");
    }
    int folder = open_folder_of(path);
    if (folder < 0) {
        return fault_set(fault, STATUS_IO,
                         "cannot write to the folder of the checkpoint: %s; choose another folder",
                         os_error_text());
    }
    /* Held until the process ends, however it ends. Not every file system has such locks. */
    if (flock(folder, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        return fault_set(
            fault, STATUS_IO,
            "another run keeps its checkpoint in the same folder; wait until it has ended");
    }
    return true;
}

/* Makes the rename durable: the entry of the file in its folder. */
static void sync_folder_of(const char *path) {
    int folder = open_folder_of(path);
    if (folder >= 0) {
        fsync(folder);
        close(folder);
    }
}

static void fetch_saved(const struct executor *executor) {
    for (int i = 0; i < executor->plan->tensors; i++) {
        const struct tensor *tensor = &executor->plan->tensor[i];
        if (tensor->arena == ARENA_PARAMETER || tensor->arena == ARENA_STATE) {
            executor_fetch(executor, tensor);
        }
    }
}

uint64_t checkpoint_digest(const struct executor *executor) {
    struct part part[PARTS];
    uint64_t hash = 0;
    fetch_saved(executor);
    list_parts(executor, (struct checkpoint_record){NULL, 0}, part);
    for (int i = 1; i < PARTS; i++) {
        hash = hash_bytes(hash, part[i].bytes, part[i].count);
    }
    return hash;
}

bool checkpoint_write(const struct executor *executor, const char *path,
                      struct checkpoint_record record, struct fault *fault) {
    struct part part[PARTS];
    char head[HEAD_BYTES], identity[HEAD_BYTES], beside[PATH_BYTES];
    fetch_saved(executor);
    list_parts(executor, record, part);
    uint64_t hash = executor->exec.step;
    for (int i = 0; i < PARTS; i++) {
        hash = hash_bytes(hash, part[i].bytes, part[i].count);
    }
    format_identity(executor, record.count, identity);
    format_text(head, sizeof head, "%s %llu %llx\n", identity,
                (unsigned long long)executor->exec.step, (unsigned long long)hash);
    format_text(beside, sizeof beside, "%s%s", path, BESIDE);
    int file = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool fine = file >= 0 && write_all(file, head, strlen(head));
    for (int i = 0; i < PARTS && fine; i++) {
        fine = write_all(file, part[i].bytes, part[i].count);
    }
    fine = fine && fsync(file) == 0;
    fine = (file < 0 || close(file) == 0) && fine;
    if (!fine || rename(beside, path) != 0) {
        const char *why = os_error_text();
        bool full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
        unlink(beside);
        return fault_set(fault, STATUS_IO,
                         "cannot write the checkpoint of step %llu: %s; %s, and continue from the "
                         "last one",
                         (unsigned long long)executor->exec.step, why,
                         full ? "free space on the phone" : "check its folder");
    }
    sync_folder_of(path);
    return true;
}

static bool refuse(struct fault *fault, const char *why) {
    return fault_set(fault, STATUS_BAD_CHECKPOINT,
                     "the checkpoint %s; remove it to begin at the first step", why);
}

/* Reads the line of text; false: there is none. */
static bool read_head(int file, char head[HEAD_BYTES]) {
    for (int i = 0; i < HEAD_BYTES - 1; i++) {
        if (!read_all(file, head + i, 1)) {
            return false;
        }
        if (head[i] == '\n') {
            head[i] = '\0';
            return true;
        }
    }
    return false;
}

static bool restore(struct executor *executor, int file, struct checkpoint_record record,
                    struct fault *fault) {
    struct part part[PARTS];
    char head[HEAD_BYTES], identity[HEAD_BYTES], expected[HEAD_BYTES], rest;
    if (!read_head(file, head)) {
        return refuse(fault, "is damaged");
    }
    size_t name = sizeof VERSION - 3; /* without the number and the space */
    if (strncmp(head, VERSION, name) != 0) {
        return refuse(fault, "is damaged");
    }
    if (strncmp(head, VERSION, name + 2) != 0) {
        return refuse(fault, "was written by another version of the runner");
    }
    format_identity(executor, record.count, identity);
    size_t length = strlen(identity);
    if (strncmp(head, identity, length) != 0 || head[length] != ' ') {
        return refuse(fault, "belongs to another workload, processor or number of threads");
    }
    uint64_t step = 0;
    for (const char *digit = head + length + 1; *digit >= '0' && *digit <= '9'; digit++) {
        step = step * 10 + (uint64_t)(*digit - '0');
    }
    list_parts(executor, record, part);
    uint64_t hash = step;
    for (int i = 0; i < PARTS; i++) {
        if (!read_all(file, part[i].bytes, part[i].count)) {
            return refuse(fault, "is damaged");
        }
        hash = hash_bytes(hash, part[i].bytes, part[i].count);
    }
    format_text(expected, sizeof expected, "%s %llu %llx", identity, (unsigned long long)step,
                (unsigned long long)hash);
    if (strcmp(head, expected) != 0 || read_all(file, &rest, 1)) {
        return refuse(fault, "is damaged");
    }
    executor->exec.step = step;
    for (int i = 0; i < executor->plan->tensors; i++) {
        struct tensor *tensor = &executor->plan->tensor[i];
        if (tensor->init == INIT_ZERO) {
            tensor->init = INIT_CONSTANT; /* no longer zero: a device has to copy it */
        }
    }
    return true;
}

bool checkpoint_read(struct executor *executor, const char *path, struct checkpoint_record record,
                     bool *found, struct fault *fault) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    *found = file >= 0;
    if (file < 0) {
        return errno == ENOENT ||
               fault_set(fault, STATUS_IO, "cannot read the checkpoint: %s", os_error_text());
    }
    bool fine = restore(executor, file, record, fault);
    close(file);
    return fine;
}
