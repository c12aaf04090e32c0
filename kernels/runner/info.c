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

#include "../engine/opencl/opencl.h"
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

/* -- OpenCL */

#ifdef RUNNER_STATIC

/* A static executable cannot load a vendor's library, and so shows no devices. */
static void tell_devices(int pipe_end) { _exit(write(pipe_end, "[]", 3) == 3 ? 0 : 1); }

#else

static const char *type_of(const struct opencl_device *device) {
    return device->type & CL_DEVICE_TYPE_GPU   ? "gpu"
           : device->type & CL_DEVICE_TYPE_CPU ? "cpu"
                                               : "other";
}

static void say_one(struct say *say, const struct opencl_device *device) {
    say_open_list(say, NULL, '{');
    say_word(say, "platform", device->platform);
    say_word(say, "device", device->name);
    say_word(say, "version", device->version);
    say_word(say, "driver", device->driver);
    say_word(say, "type", type_of(device));
    say_int(say, "units", (int64_t)device->units);
    say_int(say, "global_bytes", (int64_t)device->global_bytes);
    say_int(say, "max_alloc_bytes", (int64_t)device->max_alloc_bytes);
    say_int(say, "local_bytes", (int64_t)device->local_bytes);
    say_int(say, "max_group", (int64_t)device->max_group);
    say_flag(say, "images", device->images != 0);
    say_close_list(say, '}');
}

/* In the child: hands the list over a pipe, ended by a zero byte. */
static void tell_devices(int pipe_end) {
    static struct opencl_device devices[OPENCL_DEVICES_MAX];
    struct fault fault = {RUNNER_DONE, ""};
    struct opencl cl;
    struct say say;
    int count = opencl_open(&cl, &fault) ? opencl_devices(&cl, devices) : 0;
    say_aloud(&say, &fault);
    say_open_list(&say, NULL, '[');
    for (int i = 0; i < count; i++) {
        say_one(&say, &devices[i]);
    }
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
    say_raw(&say, "backends", strcmp(devices, "[]") == 0 ? "[\"cpu\"]" : "[\"cpu\",\"opencl\"]");
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
