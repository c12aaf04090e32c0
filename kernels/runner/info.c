/* info.c - `info`: who this runner is, what the processor has, which OpenCL devices the vendor shows.
 *
 * The one rule: it answers on every phone. Vendors' libraries are asked in a child, so that one that
 * crashes or hangs costs the list of devices and nothing else. */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef RUNNER_STATIC
#include <dlfcn.h>
#endif

#include "system.h"
#include "verbs.h"

enum { DEVICES_BYTES_MAX = 16 * 1024, ASK_MS = 10000, LIST_MAX = 8 };

/* -- the processor */

struct feature {
    const char *name;
    bool there;
};

static const char ON_A_HOST[] =
    "{\"time\":{\"source\":\"host\"},\"clock\":null,\"heat\":null,\"energy\":null}";

#if defined(__aarch64__)

static const char ON_A_PHONE[] =
    "{\"time\":{\"source\":\"phone\"},\"clock\":{\"source\":\"phone\"},"
    "\"heat\":{\"source\":\"phone\"},\"energy\":{\"source\":\"phone\"}}";
static const char ABI[] = "arm64-v8a";

/* A processor does not make a phone: Android does, unless it is emulated, or a native virtual phone
 * says that it is the computer it runs on. */
const char *provenance(void) {
    bool android = access("/dev/__properties__", F_OK) == 0;
    bool emulated = access("/dev/goldfish_pipe", F_OK) == 0 || access("/dev/qemu_pipe", F_OK) == 0;
    bool native = getenv("FARMHAND_NATIVE_PHONE") != NULL;
    return android && !emulated && !native ? ON_A_PHONE : ON_A_HOST;
}

/* Bits of the kernel's words on this processor (asm/hwcap.h). */
static void find_features(struct feature features[LIST_MAX]) {
    unsigned long one = getauxval(AT_HWCAP), two = getauxval(AT_HWCAP2);
    const struct feature found[LIST_MAX] = {
        {"asimd", one >> 1 & 1},    {"atomics", one >> 8 & 1}, {"fp16", one >> 10 & 1},
        {"dotprod", one >> 20 & 1}, {"sve", one >> 22 & 1},    {"i8mm", two >> 13 & 1},
        {"bf16", two >> 14 & 1},
    };
    memcpy(features, found, sizeof found);
}

bool processor_fits(struct fault *fault) {
    (void)fault; /* every 64-bit ARM has these instructions */
    return true;
}

#else

static const char ABI[] = "x86_64";

const char *provenance(void) { return ON_A_HOST; }

struct registers {
    unsigned a, b, c, d;
};

static struct registers cpuid(unsigned leaf) {
    struct registers r;
    __asm__("cpuid" : "=a"(r.a), "=b"(r.b), "=c"(r.c), "=d"(r.d) : "a"(leaf), "c"(0));
    return r;
}

/* Which wide registers the system saves; without its word they must not be touched. */
static unsigned saved_registers(void) {
    unsigned low, high;
    if ((cpuid(1).c >> 27 & 1) == 0) {
        return 0;
    }
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static void find_features(struct feature features[LIST_MAX]) {
    unsigned one = cpuid(1).c, seven = cpuid(0).a >= 7 ? cpuid(7).b : 0, saved = saved_registers();
    bool wide = (saved & 6) == 6;
    const struct feature found[LIST_MAX] = {
        {"avx", wide && one >> 28 & 1},
        {"f16c", wide && one >> 29 & 1},
        {"fma", wide && one >> 12 & 1},
        {"avx2", wide && seven >> 5 & 1},
        {"avx512f", (saved & 0xe6) == 0xe6 && seven >> 16 & 1},
    };
    memcpy(features, found, sizeof found);
}

bool processor_fits(struct fault *fault) {
    struct feature features[LIST_MAX];
    find_features(features);
    if (!features[2].there || !features[3].there) {
        return fault_say(fault, RUNNER_UNSUPPORTED,
                         "this processor lacks AVX2 or FMA, which this build needs");
    }
    return true;
}

#endif

/* -- OpenCL, as little of it as a list needs */

typedef void *cl_object;

enum {
    CL_DEVICE_TYPE_ALL = -1,
    CL_PLATFORM_NAME = 0x0902,
    CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
    CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    CL_DEVICE_GLOBAL_MEM_SIZE = 0x101f,
    CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
    CL_DEVICE_NAME = 0x102b,
    CL_DEVICE_VERSION = 0x102f
};

typedef int32_t ask_platforms(uint32_t room, cl_object *platforms, uint32_t *count);
typedef int32_t ask_devices(cl_object platform, uint64_t type, uint32_t room, cl_object *devices,
                            uint32_t *count);
typedef int32_t ask_about(cl_object object, uint32_t what, size_t room, void *answer, size_t *size);

#ifdef RUNNER_STATIC

/* A static executable cannot load a vendor's library, and so shows no devices. */
static void tell_devices(int pipe_end) { _exit(write(pipe_end, "[]", 3) == 3 ? 0 : 1); }

#else

static void *open_opencl(void) {
    static const char *const names[] = {
        "libOpenCL.so",
        "libOpenCL.so.1",
        "/vendor/lib64/libOpenCL.so",
        "/system/vendor/lib64/libOpenCL.so",
        "/system/lib64/libOpenCL.so",
        "/vendor/lib64/egl/libGLES_mali.so",
        "/system/vendor/lib64/egl/libGLES_mali.so",
        "/vendor/lib64/libPVROCL.so",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library != NULL && dlsym(library, "clGetPlatformIDs") != NULL) {
            return library;
        }
    }
    return NULL;
}

static void say_asked_text(struct say *say, const char *name, ask_about *ask, cl_object object,
                           uint32_t what) {
    char text[256] = "";
    if (ask(object, what, sizeof text - 1, text, NULL) != 0) {
        text[0] = '\0';
    }
    say_word(say, name, text);
}

static void say_asked_int(struct say *say, const char *name, ask_about *ask, cl_object object,
                          uint32_t what) {
    uint64_t number = 0; /* units are 32 bits wide, the others 64: little-endian, so both fit */
    if (ask(object, what, sizeof number, &number, NULL) != 0) {
        number = 0;
    }
    say_int(say, name, (int64_t)number);
}

static void say_device(struct say *say, void *library, cl_object platform, cl_object device) {
    ask_about *of_platform = (ask_about *)dlsym(library, "clGetPlatformInfo");
    ask_about *of_device = (ask_about *)dlsym(library, "clGetDeviceInfo");
    if (of_platform == NULL || of_device == NULL) {
        return;
    }
    say_open_list(say, NULL, '{');
    say_asked_text(say, "platform", of_platform, platform, CL_PLATFORM_NAME);
    say_asked_text(say, "device", of_device, device, CL_DEVICE_NAME);
    say_asked_text(say, "version", of_device, device, CL_DEVICE_VERSION);
    say_asked_int(say, "units", of_device, device, CL_DEVICE_MAX_COMPUTE_UNITS);
    say_asked_int(say, "global_bytes", of_device, device, CL_DEVICE_GLOBAL_MEM_SIZE);
    say_asked_int(say, "local_bytes", of_device, device, CL_DEVICE_LOCAL_MEM_SIZE);
    say_asked_int(say, "max_group", of_device, device, CL_DEVICE_MAX_WORK_GROUP_SIZE);
    say_close_list(say, '}');
}

/* The elements of the list of devices. */
static void say_devices(struct say *say) {
    void *library = open_opencl();
    if (library == NULL) {
        return;
    }
    ask_platforms *platforms_of = (ask_platforms *)dlsym(library, "clGetPlatformIDs");
    ask_devices *devices_of = (ask_devices *)dlsym(library, "clGetDeviceIDs");
    cl_object platforms[LIST_MAX], devices[LIST_MAX];
    uint32_t platform_count = 0, device_count = 0;
    if (devices_of == NULL || platforms_of(LIST_MAX, platforms, &platform_count) != 0) {
        return;
    }
    for (uint32_t p = 0; p < platform_count && p < LIST_MAX; p++) {
        if (devices_of(platforms[p], (uint32_t)CL_DEVICE_TYPE_ALL, LIST_MAX, devices,
                       &device_count) != 0) {
            continue;
        }
        for (uint32_t d = 0; d < device_count && d < LIST_MAX; d++) {
            say_device(say, library, platforms[p], devices[d]);
        }
    }
}

/* In the child: hands the list over a pipe, ended by a zero byte. */
static void tell_devices(int pipe_end) {
    struct fault fault = {RUNNER_DONE, ""};
    struct say say;
    say_aloud(&say, &fault);
    say_open_list(&say, NULL, '[');
    say_devices(&say);
    say_close_list(&say, ']');
    say.file = pipe_end;
    say.text[say.used++] = '\0';
    say_flush(&say);
    _exit(0);
}

#endif

static void hear_devices(int pipe_end, char list[DEVICES_BYTES_MAX]) {
    size_t used = 0;
    int64_t latest = now_ns() + (int64_t)ASK_MS * 1000000;
    struct pollfd ready = {.fd = pipe_end, .events = POLLIN};
    while (used < DEVICES_BYTES_MAX - 1) {
        int64_t left_ms = (latest - now_ns()) / 1000000;
        if (left_ms <= 0 || poll(&ready, 1, (int)left_ms) <= 0) {
            break;
        }
        ssize_t count = read(pipe_end, list + used, DEVICES_BYTES_MAX - 1 - used);
        if (count <= 0) {
            break;
        }
        used += (size_t)count;
        if (list[used - 1] == '\0') {
            return;
        }
    }
    strcpy(list, "[]"); /* no answer, or half of one */
}

static void ask_for_devices(char list[DEVICES_BYTES_MAX]) {
    int ends[2];
    strcpy(list, "[]");
    if (pipe(ends) != 0) {
        return;
    }
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        tell_devices(ends[1]);
    }
    close(ends[1]);
    if (child > 0) {
        hear_devices(ends[0], list);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    close(ends[0]);
}

int info(void) {
    static char devices[DEVICES_BYTES_MAX];
    struct feature features[LIST_MAX] = {{NULL, false}};
    struct fault fault = {RUNNER_DONE, ""};
    struct say say;
    find_features(features);
    ask_for_devices(devices);
    say_aloud(&say, &fault);
    say_begin(&say, "info");
    say_int(&say, "contract", RUNNER_CONTRACT);
    say_word(&say, "runner", RUNNER_VERSION);
    say_word(&say, "abi", ABI);
    say_raw(&say, "backends", "[\"cpu\"]");
    say_open_list(&say, "features", '[');
    for (int i = 0; i < LIST_MAX && features[i].name != NULL; i++) {
        if (features[i].there) {
            say_word(&say, NULL, features[i].name);
        }
    }
    say_close_list(&say, ']');
    say_raw(&say, "opencl", devices);
    say_raw(&say, "provenance", provenance());
    say_end(&say);
    return say_flush(&say) ? RUNNER_DONE : (int)fault.exit;
}
