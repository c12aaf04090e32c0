/* cycles.c - hardware counters of the processor, through perf_event_open().
 *
 * The counter units of phones with several kinds of cores count on their own cores only; so there
 * is one counter per unit, and each states how long it counted. */
#include "cycles.h"

#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../engine/os.h"

#define UNITS "/sys/bus/event_source/devices"
enum { UNITS_MAX = 4, FOLDER_BYTES = 4096, ARM_CYCLES = 0x11 };

static int counters[UNITS_MAX];
static int opened;

static void open_counter(uint32_t type, uint64_t config) {
    struct perf_event_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.size = PERF_ATTR_SIZE_VER0;
    attr.type = type;
    attr.config = config;
    attr.inherit = 1;
    attr.exclude_hv = 1;
    attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    /* Without the kernel's cycles, which not everybody may count, the clock would seem too low. */
    long file = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
    if (file >= 0 && opened < UNITS_MAX) {
        counters[opened++] = (int)file;
    }
}

void cycles_open(void) {
    static char entries[FOLDER_BYTES];
    int folder = open(UNITS, O_RDONLY | O_CLOEXEC);
    long count = folder < 0 ? 0 : syscall(SYS_getdents64, folder, entries, sizeof entries);
    bool found = false;
    for (long at = 0; at < count;) {
        /* struct linux_dirent64: inode and offset (8 bytes each), length, type, name. */
        const char *name = entries + at + 19;
        uint16_t length;
        char path[PATH_BYTES], text[32];
        memcpy(&length, entries + at + 16, sizeof length);
        at += length;
        if (strncmp(name, "armv", 4) == 0 && strlen(name) < 100) {
            strcat(strcat(strcpy(path, UNITS "/"), name), "/type");
            if (read_file_start(path, text, sizeof text) > 0) {
                found = true;
                open_counter((uint32_t)strtol(text, NULL, 10), ARM_CYCLES);
            }
        }
    }
    if (folder >= 0) {
        close(folder);
    }
    if (!found) {
        open_counter(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES);
    }
}

bool cycles_read(int64_t *cycles, int64_t *ns) {
    *cycles = *ns = 0;
    for (int i = 0; i < opened; i++) {
        uint64_t values[3]; /* cycles, time enabled, time running */
        if (read(counters[i], values, sizeof values) != (long)sizeof values) {
            return false;
        }
        *cycles += (int64_t)values[0];
        *ns += (int64_t)values[2];
    }
    return *ns > 0;
}
