/* os.c - calls of the operating system; see os.h. */
#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "text.h"

enum { MASK_BYTES = 1024 };

void sleep_until(int64_t ns) {
    struct timespec due = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &due, NULL);
}

void request_precise_wakeups(void) {
    const int priority = 1; /* even the lowest real-time priority precedes ordinary threads */
    syscall(SYS_prctl, PR_SET_TIMERSLACK, 1, 0, 0, 0);
    if (syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &priority) != 0) {
        /* Real-time priority needs root; Android grants a nice value of -20 to every process. */
        syscall(SYS_setpriority, PRIO_PROCESS, 0, -20);
    }
}

int64_t thread_cpu_ns(void) {
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

const char *os_error_text(void) { return strerror(errno); }

uint64_t affinity_mask(void) {
    uint64_t mask[MASK_BYTES / 8] = {0};
    syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
    return mask[0];
}

bool set_affinity(uint64_t mask) {
    uint64_t wide[MASK_BYTES / 8] = {mask};
    return syscall(SYS_sched_setaffinity, 0, sizeof wide, wide) == 0;
}

/* Parses a list such as 0-3,6,8-9. */
uint64_t online_cores(void) {
    char text[256];
    uint64_t mask = 0;
    if (read_file_start("/sys/devices/system/cpu/online", text, sizeof text) <= 0) {
        return affinity_mask();
    }
    for (char *at = text; *at >= '0' && *at <= '9';) {
        long first = strtol(at, &at, 10);
        long last = *at == '-' ? strtol(at + 1, &at, 10) : first;
        for (long core = first; core <= last && core < 64; core++) {
            mask |= UINT64_C(1) << core;
        }
        at += *at == ',';
    }
    return mask;
}

long read_file_start(const char *path, char *bytes, size_t size) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return -1;
    }
    size_t used = 0;
    ssize_t count = 0;
    while (used < size - 1 && (count = read(file, bytes + used, size - 1 - used)) > 0) {
        used += (size_t)count;
    }
    close(file);
    bytes[used] = '\0';
    return count < 0 ? -1 : (long)used;
}

char *read_file(const char *path, size_t limit, size_t *count) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return NULL;
    }
    char *bytes = NULL;
    size_t size = 0;
    ssize_t piece = 1;
    *count = 0;
    while (piece > 0) {
        if (*count == size) {
            size = size == 0 ? 1 << 18 : 2 * size;
            char *wider = *count > limit ? NULL : realloc(bytes, size);
            if (wider == NULL) {
                errno = EFBIG;
                piece = -1;
                break;
            }
            bytes = wider;
        }
        piece = read(file, bytes + *count, size - *count);
        *count += piece > 0 ? (size_t)piece : 0;
    }
    int reason = errno;
    close(file);
    if (piece < 0) {
        free(bytes);
        errno = reason;
        return NULL;
    }
    return bytes;
}

bool read_fully(int file, void *to, size_t count, int64_t offset) {
    char *at = to;
    while (count > 0) {
        ssize_t got = pread(file, at, count, (off_t)offset);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return false;
        }
        size_t piece = got > 0 ? (size_t)got : 0;
        at += piece;
        offset += (int64_t)piece;
        count -= piece;
    }
    return true;
}

bool write_fully(int file, const void *bytes, size_t count) {
    const char *at = bytes;
    while (count > 0) {
        ssize_t written = write(file, at, count);
        if (written == 0 || (written < 0 && errno != EINTR)) {
            return false;
        }
        size_t piece = written > 0 ? (size_t)written : 0;
        at += piece;
        count -= piece;
    }
    return true;
}

bool join_path(char path[PATH_BYTES], const char *folder, const char *name) {
    format_text(path, PATH_BYTES, "%s/%s", folder, name);
    return strlen(folder) + 1 + strlen(name) < PATH_BYTES;
}

int64_t peak_rss_kb(void) {
    char text[4096];
    if (read_file_start("/proc/self/status", text, sizeof text) <= 0) {
        return -1;
    }
    const char *at = strstr(text, "VmHWM:");
    return at == NULL ? -1 : strtoll(at + 6, NULL, 10);
}
