/* system.h - all that the runner asks of the operating system beyond files: time, cores, threads'
 * places, and why a call failed. Three libcs (bionic, musl, glibc) lie under it; what they lay out
 * differently is asked of the kernel itself. */
#ifndef FARMHAND_SYSTEM_H
#define FARMHAND_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* The one clock of everything that is said: CLOCK_BOOTTIME, in nanoseconds. */
static inline int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Sleeps until that moment of the clock; a signal may wake it before. */
void sleep_until(int64_t ns);

/* Asks that the calling thread's sleeps end when they should: not some 50 us later, and not when
 * others have had their turn. For a thread that soon sleeps again. */
void wake_sharply(void);

/* Processor time of the calling thread. A cost, not a moment. */
int64_t thread_cpu_ns(void);

/* Why the last call failed, in the system's words. */
const char *system_reason(void);

/* The first 64 cores that the calling thread may run on, and that are switched on. */
uint64_t system_mask(void);
uint64_t system_online(void);

/* Places the calling thread; false where the system will not have it. */
bool system_place(uint64_t mask);

/* Reads the beginning of a file and ends it with a zero byte; the count, or -1. */
long read_start(const char *path, char *bytes, size_t size);

/* Reads a whole file of at most `most` bytes into memory of its own; NULL: see system_reason(). */
char *read_whole(const char *path, size_t most, size_t *count);

/* "folder/name"; false when it is longer than a path may be. */
enum { PATH_BYTES = 1024 };
bool join_path(char path[PATH_BYTES], const char *folder, const char *name);

/* The most memory that this process ever held, or -1. */
int64_t peak_rss_kb(void);

#endif
