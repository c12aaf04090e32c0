/* checkpoint.c - see checkpoint.h. */
#define _GNU_SOURCE
#include "checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os.h"

enum { PARTS = 3, PROGRAM_BYTES_MAX = 1 << 26 };

static const char VERSION[] = "farmhand-checkpoint 2 ", BESIDE[] = ".new";

static bool is_saved(enum arena arena) { return arena == ARENA_PARAMETER || arena == ARENA_STATE; }

struct part {
    void *bytes;
    size_t count;
};

static void list_parts(const struct executor *executor, void *record, size_t record_bytes,
                       struct part part[PARTS]) {
    int count = 0;
    part[count++] = (struct part){record, record_bytes};
    for (int arena = 0; arena < ARENAS; arena++) {
        if (is_saved((enum arena)arena)) {
            part[count++] = (struct part){executor->arena[arena], executor->plan->arena[arena]};
        }
    }
}

/* A hash of this program: another build may round differently; 0: it cannot be read. */
static uint64_t hash_program(void) {
    size_t count = 0;
    char *bytes = read_file("/proc/self/exe", PROGRAM_BYTES_MAX, &count);
    uint64_t hash = bytes == NULL ? 0 : hash_bytes(0, bytes, count);
    free(bytes);
    return hash;
}

/* Opens the folder that a file is in; -1: it cannot be written to. */
static int open_folder_of(const char *path) {
    char folder[PATH_BYTES];
    format_text(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    memcpy(slash == NULL ? folder : slash + 1, ".", 2); /* "/" has to stay what it is */
    return access(folder, W_OK) == 0 ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
}

bool checkpoint_open(struct checkpoint *checkpoint, const char *path, const struct plan *plan,
                     size_t record_bytes, struct fault *fault) {
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
    checkpoint->path = path;
    checkpoint->record_bytes = record_bytes;
    format_text(checkpoint->identity, sizeof checkpoint->identity,
                "%s%s %s %d %llx %llx %llu %llu %llu", VERSION, plan->digest,
                plan->opencl ? "opencl" : "cpu", plan->threads, (unsigned long long)plan->hash,
                (unsigned long long)hash_program(), (unsigned long long)record_bytes,
                (unsigned long long)plan->arena[ARENA_PARAMETER],
                (unsigned long long)plan->arena[ARENA_STATE]);
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
        if (is_saved(executor->plan->tensor[i].arena)) {
            executor_fetch(executor, &executor->plan->tensor[i]);
        }
    }
}

static uint64_t hash_parts(uint64_t hash, const struct part part[PARTS]) {
    for (int i = 0; i < PARTS; i++) {
        hash = hash_bytes(hash, part[i].bytes, part[i].count);
    }
    return hash;
}

uint64_t checkpoint_digest(const struct executor *executor) {
    struct part part[PARTS];
    fetch_saved(executor);
    list_parts(executor, NULL, 0, part);
    return hash_parts(0, part);
}

static void format_head(const struct checkpoint *checkpoint, uint64_t step, uint64_t hash,
                        char head[CHECKPOINT_HEAD_BYTES]) {
    format_text(head, CHECKPOINT_HEAD_BYTES, "%s %llu %llx\n", checkpoint->identity,
                (unsigned long long)step, (unsigned long long)hash);
}

/* Writes a new file, which must not exist; false: see os_error_text(). */
static bool write_file(const char *path, const char *head, const struct part part[PARTS]) {
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool fine = file >= 0 && write_fully(file, head, strlen(head));
    for (int i = 0; i < PARTS && fine; i++) {
        fine = write_fully(file, part[i].bytes, part[i].count);
    }
    fine = fine && fsync(file) == 0;
    int reason = errno;
    if (file >= 0 && close(file) != 0 && fine) {
        return false;
    }
    errno = reason;
    return fine;
}

bool checkpoint_write(const struct checkpoint *checkpoint, const struct executor *executor,
                      void *record, struct fault *fault) {
    struct part part[PARTS];
    char head[CHECKPOINT_HEAD_BYTES], beside[PATH_BYTES];
    uint64_t step = executor->exec.step;
    fetch_saved(executor);
    if (!executor_check(executor, fault)) {
        return false; /* a device that failed gave no values */
    }
    list_parts(executor, record, checkpoint->record_bytes, part);
    format_head(checkpoint, step, hash_parts(step, part), head);
    format_text(beside, sizeof beside, "%s%s", checkpoint->path, BESIDE);
    unlink(beside); /* of a run that was killed while it wrote, or no file at all */
    if (!write_file(beside, head, part) || rename(beside, checkpoint->path) != 0) {
        const char *why = os_error_text();
        bool full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
        unlink(beside);
        return fault_set(fault, STATUS_IO,
                         "cannot write the checkpoint of step %llu: %s; %s, and continue from the "
                         "last one",
                         (unsigned long long)step, why,
                         full ? "free space on the phone" : "check its folder");
    }
    sync_folder_of(checkpoint->path);
    return true;
}

bool checkpoint_refuse(struct fault *fault, const char *why) {
    return fault_set(fault, STATUS_BAD_CHECKPOINT,
                     "the checkpoint %s; remove it to begin at the first step", why);
}

/* Reads the line of text; returns its length without the line break, or 0: there is none. */
static size_t read_head(int file, int64_t size, char head[CHECKPOINT_HEAD_BYTES]) {
    size_t count = size < CHECKPOINT_HEAD_BYTES ? (size_t)size : CHECKPOINT_HEAD_BYTES;
    char *end = read_fully(file, head, count, 0) ? memchr(head, '\n', count) : NULL;
    if (end == NULL) {
        return 0;
    }
    *end = '\0';
    return (size_t)(end - head);
}

/* Why the line of text is not that of a checkpoint of this run, or NULL. */
static const char *check_head(const struct checkpoint *checkpoint, const char *head) {
    size_t name = sizeof VERSION - 3; /* without the number and the space */
    size_t length = strlen(checkpoint->identity);
    if (strncmp(head, VERSION, name) != 0) {
        return "is damaged";
    }
    if (strncmp(head, VERSION, name + 2) != 0) {
        return "was written by another version of the runner";
    }
    if (strncmp(head, checkpoint->identity, length) != 0 || head[length] != ' ') {
        return "belongs to another workload, number of threads or build of the runner";
    }
    return NULL;
}

/* Reads everything into its place; returns why that cannot be used, or NULL. */
static const char *restore(const struct checkpoint *checkpoint, struct executor *executor, int file,
                           void *record) {
    struct part part[PARTS];
    struct stat status;
    char head[CHECKPOINT_HEAD_BYTES], expected[CHECKPOINT_HEAD_BYTES];
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
        return "is not a regular file";
    }
    size_t length = read_head(file, (int64_t)status.st_size, head);
    const char *why = length == 0 ? "is damaged" : check_head(checkpoint, head);
    if (why != NULL) {
        return why;
    }
    uint64_t step = 0;
    const char *digit = head + strlen(checkpoint->identity) + 1;
    for (; *digit >= '0' && *digit <= '9'; digit++) {
        step = step * 10 + (uint64_t)(*digit - '0');
    }
    int64_t at = (int64_t)length + 1;
    list_parts(executor, record, checkpoint->record_bytes, part);
    for (int i = 0; i < PARTS; i++) {
        if (!read_fully(file, part[i].bytes, part[i].count, at)) {
            return "is damaged";
        }
        at += (int64_t)part[i].count;
    }
    format_head(checkpoint, step, hash_parts(step, part), expected);
    head[length] = '\n';
    if (strncmp(head, expected, length + 1) != 0 || at != (int64_t)status.st_size) {
        return "is damaged";
    }
    executor->exec.step = step;
    return NULL;
}

bool checkpoint_read(const struct checkpoint *checkpoint, struct executor *executor, void *record,
                     bool *found, struct fault *fault) {
    /* Without O_NONBLOCK, opening a named pipe would wait for its writer. */
    int file = open(checkpoint->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *found = file >= 0;
    if (file < 0) {
        return errno == ENOENT ||
               fault_set(fault, STATUS_IO, "cannot read the checkpoint: %s", os_error_text());
    }
    const char *why = restore(checkpoint, executor, file, record);
    close(file);
    if (why != NULL) {
        return checkpoint_refuse(fault, why);
    }
    for (int i = 0; i < executor->plan->tensors; i++) {
        struct tensor *tensor = &executor->plan->tensor[i];
        if (is_saved(tensor->arena)) {
            tensor->init = INIT_CONSTANT; /* no longer zero or nothing: a device has to copy it */
        }
    }
    return true;
}
