/* library.c - loads the OpenCL library of the vendor, and lists its devices.
 *
 * The one rule: nothing is linked. A phone without OpenCL runs the same executable, and a broken
 * library is a fault with one sentence. */
#include "opencl.h"

#ifndef RUNNER_STATIC

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Where vendors install it; the first that has clGetPlatformIDs is used. */
static const char PATHS[] = "libOpenCL.so\0"
                            "libOpenCL.so.1\0"
                            "/vendor/lib64/libOpenCL.so\0"
                            "/system/vendor/lib64/libOpenCL.so\0"
                            "/system/lib64/libOpenCL.so\0"
                            "/vendor/lib64/egl/libGLES_mali.so\0"
                            "/vendor/lib64/libPVROCL.so\0"
                            "libOpenCL-pixel.so\0"
                            "/vendor/lib64/libOpenCL-pixel.so\0";

#define OPENCL_NAME(result, name, arguments) "cl" #name "\0"
static const char NAMES[] = OPENCL_FUNCTIONS(OPENCL_NAME);
static const char COMMAND_BUFFER_NAMES[] = COMMAND_BUFFER_FUNCTIONS(OPENCL_NAME);

enum { EXTENSIONS_BYTES = 16384 };

typedef void *find_function(const char *name);

/* A library, and how its functions are looked up: Google phones have a lookup function of their
 * own. */
struct library {
    void *opened;
    find_function *find;
};

static void *find_symbol(const struct library *library, const char *name) {
    return library->find != NULL ? library->find(name) : dlsym(library->opened, name);
}

static bool open_library(struct library *library, const char *path) {
    library->find = NULL;
    library->opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library->opened == NULL) {
        return false;
    }
    void *enable = dlsym(library->opened, "enableOpenCL");
    void *find = dlsym(library->opened, "loadOpenCLPointer");
    if (enable != NULL && find != NULL) {
        ((void (*)(void))enable)();
        library->find = (find_function *)find;
    }
    return find_symbol(library, "clGetPlatformIDs") != NULL;
}

static bool find_library(struct library *library, struct fault *fault) {
    const char *named = getenv("FARM_OPENCL");
    if (named != NULL && *named != '\0') {
        return open_library(library, named) ||
               fault_set(fault, STATUS_UNSUPPORTED,
                         "FARM_OPENCL names '%.200s', which is not an OpenCL library", named);
    }
    for (const char *path = PATHS; *path != '\0'; path += strlen(path) + 1) {
        if (open_library(library, path)) {
            return true;
        }
    }
    return fault_set(
        fault, STATUS_UNSUPPORTED,
        "no OpenCL library was found; name one in FARM_OPENCL, or use the CPU backend");
}

bool opencl_open(struct opencl *cl, struct fault *fault) {
    struct library library;
    if (!find_library(&library, fault)) {
        return false;
    }
    char *slot = (char *)cl;
    for (const char *name = NAMES; *name != '\0'; name += strlen(name) + 1) {
        void *symbol = find_symbol(&library, name);
        if (symbol == NULL) {
            return fault_set(fault, STATUS_UNSUPPORTED,
                             "the OpenCL library has no %s; use the CPU backend", name);
        }
        memcpy(slot, &symbol, sizeof symbol);
        slot += sizeof symbol;
    }
    void *symbol = find_symbol(&library, "clGetExtensionFunctionAddressForPlatform");
    memcpy(slot, &symbol, sizeof symbol);
    return true;
}

/* Whether a list of words separated by spaces contains this word. */
static bool has_word(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length) {
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

bool opencl_command_buffers(const struct opencl *cl, const struct opencl_device *device,
                            struct command_buffers *functions) {
    static char extensions[EXTENSIONS_BYTES];
    char *slot = (char *)functions;
    cl->GetDeviceInfo(device->id, CL_DEVICE_EXTENSIONS, sizeof extensions - 1, extensions, NULL);
    if (cl->GetExtensionFunctionAddressForPlatform == NULL ||
        !has_word(extensions, "cl_khr_command_buffer")) {
        return false;
    }
    for (const char *name = COMMAND_BUFFER_NAMES; *name != '\0'; name += strlen(name) + 1) {
        void *found = cl->GetExtensionFunctionAddressForPlatform(device->platform_id, name);
        if (found == NULL) {
            return false;
        }
        memcpy(slot, &found, sizeof found);
        slot += sizeof found;
    }
    return true;
}

/* Replaces what is not printable: these texts end up in records and in tuning files. */
static void make_printable(char text[OPENCL_TEXT_BYTES]) {
    text[OPENCL_TEXT_BYTES - 1] = '\0';
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] <= ' ') {
        text[--length] = '\0';
    }
    for (char *at = text; *at != '\0'; at++) {
        *at = *at < ' ' || *at > '~' ? ' ' : *at;
    }
}

static void describe(const struct opencl *cl, cl_handle platform, struct opencl_device *device) {
    const struct {
        uint32_t name;
        uint64_t *value;
    } infos[] = {
        {CL_DEVICE_TYPE, &device->type},
        {CL_DEVICE_MAX_COMPUTE_UNITS, &device->units},
        {CL_DEVICE_GLOBAL_MEM_SIZE, &device->global_bytes},
        {CL_DEVICE_MAX_MEM_ALLOC_SIZE, &device->max_alloc_bytes},
        {CL_DEVICE_LOCAL_MEM_SIZE, &device->local_bytes},
        {CL_DEVICE_MAX_WORK_GROUP_SIZE, &device->max_group},
        {CL_DEVICE_MEM_BASE_ADDR_ALIGN, &device->align_bits},
        {CL_DEVICE_IMAGE_SUPPORT, &device->images},
    };
    /* Some are 32 bits wide, some 64; on a little-endian processor both can be read as 64. */
    for (size_t i = 0; i < sizeof infos / sizeof *infos; i++) {
        if (cl->GetDeviceInfo(device->id, infos[i].name, 8, infos[i].value, NULL) != 0) {
            *infos[i].value = 0;
        }
    }
    const size_t room = OPENCL_TEXT_BYTES - 1;
    cl->GetPlatformInfo(platform, CL_PLATFORM_NAME, room, device->platform, NULL);
    cl->GetDeviceInfo(device->id, CL_DEVICE_NAME, room, device->name, NULL);
    cl->GetDeviceInfo(device->id, CL_DEVICE_VERSION, room, device->version, NULL);
    cl->GetDeviceInfo(device->id, CL_DRIVER_VERSION, room, device->driver, NULL);
    make_printable(device->platform);
    make_printable(device->name);
    make_printable(device->version);
    make_printable(device->driver);
}

int opencl_devices(const struct opencl *cl, struct opencl_device device[OPENCL_DEVICES_MAX]) {
    cl_handle platforms[OPENCL_DEVICES_MAX], ids[OPENCL_DEVICES_MAX];
    uint32_t platform_count = 0;
    int count = 0;
    if (cl->GetPlatformIDs(OPENCL_DEVICES_MAX, platforms, &platform_count) != CL_SUCCESS) {
        return 0;
    }
    for (uint32_t p = 0; p < platform_count && p < OPENCL_DEVICES_MAX; p++) {
        uint32_t device_count = 0;
        if (cl->GetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, OPENCL_DEVICES_MAX, ids,
                             &device_count) != CL_SUCCESS) {
            continue;
        }
        for (uint32_t d = 0;
             d < device_count && d < OPENCL_DEVICES_MAX && count < OPENCL_DEVICES_MAX; d++) {
            memset(&device[count], 0, sizeof device[count]);
            device[count].id = ids[d];
            device[count].platform_id = platforms[p];
            describe(cl, platforms[p], &device[count++]);
        }
    }
    return count;
}

#endif
