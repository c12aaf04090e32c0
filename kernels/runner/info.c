/* info.c - the command `info`: the version of the runner, processor features, and OpenCL devices.
 *
 * The one rule: it answers on every phone. Vendor libraries are called in a child process, so that
 * one that crashes or hangs costs the list of devices and nothing else. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../engine/opencl/opencl.h"
#include "../engine/os.h"
#include "commands.h"

enum { DEVICES_BYTES_MAX = 16 * 1024, DEVICES_TIMEOUT_MS = 10000, LIST_MAX = 8 };

/* ---- the processor ---- */

struct feature {
    const char *name;
    bool present;
};

static const char HOST_PROVENANCE[] =
    "{\"time\":{\"source\":\"host\"},\"clock\":null,\"heat\":null,\"energy\":null}";

#if defined(__aarch64__)

static const char PHONE_PROVENANCE[] =
    "{\"time\":{\"source\":\"phone\"},\"clock\":{\"source\":\"phone\"},"
    "\"heat\":{\"source\":\"phone\"},\"energy\":{\"source\":\"phone\"}}";
static const char ABI[] = "arm64-v8a";

static bool is_readable_file(const char *path) {
    struct stat status;
    int file = open(path, O_RDONLY);
    bool regular = file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    if (file >= 0) {
        close(file);
    }
    return regular;
}

/* Until Android 6 the properties are one file; since then a folder, which only init may list. */
static bool has_properties(void) {
    return is_readable_file("/dev/__properties__") ||
           is_readable_file("/dev/__properties__/properties_serial");
}

/* An arm64 processor is a phone if it runs Android, unless Android is emulated or a native virtual
 * phone says that it is a computer. */
const char *provenance(void) {
    bool emulated = access("/dev/goldfish_pipe", F_OK) == 0 || access("/dev/qemu_pipe", F_OK) == 0;
    bool native = getenv("FARM_NATIVE_PHONE") != NULL;
    return has_properties() && !emulated && !native ? PHONE_PROVENANCE : HOST_PROVENANCE;
}

/* Bits of the hardware capability words of the kernel (asm/hwcap.h). */
static void detect_features(struct feature features[LIST_MAX]) {
    unsigned long one = getauxval(AT_HWCAP), two = getauxval(AT_HWCAP2);
    const struct feature detected[LIST_MAX] = {
        {"asimd", one >> 1 & 1},    {"atomics", one >> 8 & 1}, {"fp16", one >> 10 & 1},
        {"dotprod", one >> 20 & 1}, {"sve", one >> 22 & 1},    {"i8mm", two >> 13 & 1},
        {"bf16", two >> 14 & 1},
    };
    memcpy(features, detected, sizeof detected);
}

bool processor_is_supported(struct fault *fault) {
    (void)fault; /* every 64-bit ARM processor has the instructions of this build */
    return true;
}

#else

static const char ABI[] = "x86_64";

const char *provenance(void) { return HOST_PROVENANCE; }

struct registers {
    unsigned a, b, c, d;
};

static struct registers cpuid(unsigned leaf) {
    struct registers r;
    __asm__("cpuid" : "=a"(r.a), "=b"(r.b), "=c"(r.c), "=d"(r.d) : "a"(leaf), "c"(0));
    return r;
}

/* Which wide registers the system saves on a context switch; others must not be used. */
static unsigned saved_registers(void) {
    unsigned low, high;
    if ((cpuid(1).c >> 27 & 1) == 0) {
        return 0;
    }
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static void detect_features(struct feature features[LIST_MAX]) {
    unsigned one = cpuid(1).c, seven = cpuid(0).a >= 7 ? cpuid(7).b : 0, saved = saved_registers();
    bool wide = (saved & 6) == 6;
    const struct feature detected[LIST_MAX] = {
        {"avx", wide && one >> 28 & 1},
        {"f16c", wide && one >> 29 & 1},
        {"fma", wide && one >> 12 & 1},
        {"avx2", wide && seven >> 5 & 1},
        {"avx512f", (saved & 0xe6) == 0xe6 && seven >> 16 & 1},
    };
    memcpy(features, detected, sizeof detected);
}

bool processor_is_supported(struct fault *fault) {
    struct feature features[LIST_MAX];
    detect_features(features);
    if (!features[2].present || !features[3].present) {
        return fault_set(
            fault, STATUS_UNSUPPORTED,
            "this processor lacks AVX2 or FMA, which this build needs; use another computer");
    }
    return true;
}

#endif

/* ---- OpenCL ---- */

#ifdef RUNNER_STATIC

/* A static executable cannot load the library of a vendor, and so lists no devices. */
static void write_devices(int pipe_end) { _exit(write(pipe_end, "[]", 3) == 3 ? 0 : 1); }

#else

static const char *type_name(const struct opencl_device *device) {
    return device->type & CL_DEVICE_TYPE_GPU   ? "gpu"
           : device->type & CL_DEVICE_TYPE_CPU ? "cpu"
                                               : "other";
}

static void write_device_entry(struct jsonl_writer *out, const struct opencl_device *device) {
    json_open(out, NULL, '{');
    json_string(out, "platform", device->platform);
    json_string(out, "device", device->name);
    json_string(out, "version", device->version);
    json_string(out, "driver", device->driver);
    json_string(out, "type", type_name(device));
    json_int(out, "units", (int64_t)device->units);
    json_int(out, "global_bytes", (int64_t)device->global_bytes);
    json_int(out, "max_alloc_bytes", (int64_t)device->max_alloc_bytes);
    json_int(out, "local_bytes", (int64_t)device->local_bytes);
    json_int(out, "max_group", (int64_t)device->max_group);
    json_bool(out, "images", device->images != 0);
    json_close(out, '}');
}

/* In the child: writes the list to a pipe, followed by a zero byte. */
static void write_devices(int pipe_end) {
    static struct opencl_device devices[OPENCL_DEVICES_MAX];
    struct fault fault = {STATUS_DONE, ""};
    struct opencl cl;
    struct jsonl_writer out;
    int count = opencl_open(&cl, &fault) ? opencl_devices(&cl, devices) : 0;
    jsonl_to_stdout(&out, &fault);
    json_open(&out, NULL, '[');
    for (int i = 0; i < count; i++) {
        write_device_entry(&out, &devices[i]);
    }
    json_close(&out, ']');
    out.file = pipe_end;
    out.text[out.used++] = '\0';
    jsonl_flush(&out);
    _exit(0);
}

#endif

static void read_devices(int pipe_end, char list[DEVICES_BYTES_MAX]) {
    size_t used = 0;
    int64_t latest = now_ns() + (int64_t)DEVICES_TIMEOUT_MS * 1000000;
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
    strcpy(list, "[]"); /* no answer, or an incomplete one */
}

static void list_devices(char list[DEVICES_BYTES_MAX]) {
    int ends[2];
    strcpy(list, "[]");
    if (pipe(ends) != 0) {
        return;
    }
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        write_devices(ends[1]);
    }
    close(ends[1]);
    if (child > 0) {
        read_devices(ends[0], list);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    close(ends[0]);
}

/* The names that an option takes; the list ends with NULL. */
static void write_names(struct jsonl_writer *out, const char *option, const char *const *names) {
    json_open(out, option, '[');
    for (; *names != NULL; names++) {
        json_string(out, NULL, *names);
    }
    json_close(out, ']');
}

int info_main(void) {
    static char devices[DEVICES_BYTES_MAX];
    struct feature features[LIST_MAX] = {{NULL, false}};
    struct fault fault = {STATUS_DONE, ""};
    struct jsonl_writer out;
    detect_features(features);
    list_devices(devices);
    jsonl_to_stdout(&out, &fault);
    json_begin(&out, "info");
    json_int(&out, "contract", RUNNER_CONTRACT);
    json_string(&out, "runner", RUNNER_VERSION);
    json_string(&out, "abi", ABI);
    json_raw(&out, "backends", strcmp(devices, "[]") == 0 ? "[\"cpu\"]" : "[\"cpu\",\"opencl\"]");
    json_open(&out, "features", '[');
    for (int i = 0; i < LIST_MAX && features[i].name != NULL; i++) {
        if (features[i].present) {
            json_string(&out, NULL, features[i].name);
        }
    }
    json_close(&out, ']');
    json_raw(&out, "opencl", devices);
    write_names(&out, "kernels", KERNEL_NAMES);
    write_names(&out, "feeds", FEED_NAMES);
    write_names(&out, "inputs", INPUT_NAMES);
    write_names(&out, "submissions", SUBMISSION_NAMES);
    json_raw(&out, "provenance", provenance());
    json_end(&out);
    return jsonl_flush(&out) ? STATUS_DONE : (int)fault.status;
}
