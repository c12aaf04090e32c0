/* os.h - what engine and runner need from the operating system besides plain file access: time,
 * cores, thread placement, and the reason of a failed call. The sources run on three C libraries
 * (bionic, musl, glibc); where their layouts differ, the kernel is called directly. */
#ifndef FARMHAND_OS_H
#define FARMHAND_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* The clock of everything that is reported: CLOCK_BOOTTIME, in nanoseconds. */
static inline int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Sleeps until that time of now_ns(); a signal may end the sleep earlier. */
void sleep_until(int64_t ns);

/* Makes the calling thread wake up on time: without the usual timer slack of 50 us, and before
 * other threads that are ready to run. For a thread that runs briefly and sleeps again. */
void request_precise_wakeups(void);

/* Processor time of the calling thread. */
int64_t thread_cpu_ns(void);

/* The system's text for why the last call failed. */
const char *os_error_text(void);

/* Cores, as a mask of the first 64: those the calling thread may run on, and those that are
 * online. */
uint64_t affinity_mask(void);
uint64_t online_cores(void);

/* Restricts the calling thread to these cores; false: the system refused. */
bool set_affinity(uint64_t mask);

/* Reads the beginning of a file and appends a zero byte; returns the number of bytes, or -1. */
long read_file_start(const char *path, char *bytes, size_t size);

/* Reads a whole file of at most `limit` bytes into allocated memory; NULL: see os_error_text(). */
char *read_file(const char *path, size_t limit, size_t *count);

/* Reads that many bytes from a place of a file; false: the file is shorter, or os_error_text(). */
bool read_fully(int file, void *to, size_t count, int64_t offset);

/* Writes all bytes; false: see os_error_text(). */
bool write_fully(int file, const void *bytes, size_t count);

/* Writes "folder/name"; false: it is longer than PATH_BYTES. */
enum { PATH_BYTES = 1024 };
bool join_path(char path[PATH_BYTES], const char *folder, const char *name);

/* Peak resident memory of this process, or -1. */
int64_t peak_rss_kb(void);

#endif
