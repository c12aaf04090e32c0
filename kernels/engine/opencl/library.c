/* library.c - finds the vendor's OpenCL library, and asks it for its devices.
 *
 * The one rule: nothing is linked. A phone without OpenCL runs the same executable, and one whose
 * library is broken says so in one sentence. */
#include "opencl.h"

#ifndef RUNNER_STATIC

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Where vendors put it, one after another; the first that knows clGetPlatformIDs is taken. */
static const char PLACES[] = "libOpenCL.so\0"
                             "libOpenCL.so.1\0"
                             "/vendor/lib64/libOpenCL.so\0"
                             "/system/vendor/lib64/libOpenCL.so\0"
                             "/system/lib64/libOpenCL.so\0"
                             "/vendor/lib64/egl/libGLES_mali.so\0"
                             "/vendor/lib64/libPVROCL.so\0"
                             "libOpenCL-pixel.so\0"
                             "/vendor/lib64/libOpenCL-pixel.so\0";

#define OPENCL_NAME(answer, name, arguments) "cl" #name "\0"
static const char NAMES[] = OPENCL_FUNCTIONS(OPENCL_NAME);

typedef void *find_function(const char *name);

/* A library, and how its functions are found: Google's phones hide them behind one of their own. */
struct library {
    void *opened;
    find_function *find;
};

static void *function_of(const struct library *library, const char *name) {
    return library->find != NULL ? library->find(name) : dlsym(library->opened, name);
}

static bool open_one(struct library *library, const char *path) {
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
    return function_of(library, "clGetPlatformIDs") != NULL;
}

static bool open_any(struct library *library, struct fault *fault) {
    const char *named = getenv("FARMHAND_OPENCL");
    if (named != NULL && *named != '\0') {
        return open_one(library, named) ||
               fault_say(fault, RUNNER_UNSUPPORTED,
                         "FARMHAND_OPENCL names '%.200s', which is no OpenCL library", named);
    }
    for (const char *place = PLACES; *place != '\0'; place += strlen(place) + 1) {
        if (open_one(library, place)) {
            return true;
        }
    }
    return fault_say(fault, RUNNER_UNSUPPORTED,
                     "no OpenCL library was found; name one in FARMHAND_OPENCL, or use the CPU");
}

bool opencl_open(struct opencl *cl, struct fault *fault) {
    struct library library;
    if (!open_any(&library, fault)) {
        return false;
    }
    char *slot = (char *)cl;
    for (const char *name = NAMES; *name != '\0'; name += strlen(name) + 1) {
        void *found = function_of(&library, name);
        if (found == NULL) {
            return fault_say(fault, RUNNER_UNSUPPORTED, "the OpenCL library has no %s", name);
        }
        memcpy(slot, &found, sizeof found);
        slot += sizeof found;
    }
    return true;
}

/* Printable words only: what a vendor writes ends up in lines and in tuning files. */
static void clean(char text[OPENCL_TEXT_BYTES]) {
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
        uint32_t what;
        uint64_t *number;
    } numbers[] = {
        {CL_DEVICE_TYPE, &device->type},
        {CL_DEVICE_MAX_COMPUTE_UNITS, &device->units},
        {CL_DEVICE_GLOBAL_MEM_SIZE, &device->global_bytes},
        {CL_DEVICE_MAX_MEM_ALLOC_SIZE, &device->max_alloc_bytes},
        {CL_DEVICE_LOCAL_MEM_SIZE, &device->local_bytes},
        {CL_DEVICE_MAX_WORK_GROUP_SIZE, &device->max_group},
        {CL_DEVICE_MEM_BASE_ADDR_ALIGN, &device->align_bits},
        {CL_DEVICE_IMAGE_SUPPORT, &device->images},
    };
    /* Some are 32 bits wide, some 64: little-endian, so both fit. */
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (cl->GetDeviceInfo(device->id, numbers[i].what, 8, numbers[i].number, NULL) != 0) {
            *numbers[i].number = 0;
        }
    }
    const size_t room = OPENCL_TEXT_BYTES - 1;
    cl->GetPlatformInfo(platform, CL_PLATFORM_NAME, room, device->platform, NULL);
    cl->GetDeviceInfo(device->id, CL_DEVICE_NAME, room, device->name, NULL);
    cl->GetDeviceInfo(device->id, CL_DEVICE_VERSION, room, device->version, NULL);
    cl->GetDeviceInfo(device->id, CL_DRIVER_VERSION, room, device->driver, NULL);
    clean(device->platform);
    clean(device->name);
    clean(device->version);
    clean(device->driver);
}

int opencl_devices(const struct opencl *cl, struct opencl_device device[OPENCL_DEVICES_MAX]) {
    cl_handle platforms[OPENCL_DEVICES_MAX], ids[OPENCL_DEVICES_MAX];
    uint32_t platform_count = 0;
    int count = 0;
    if (cl->GetPlatformIDs(OPENCL_DEVICES_MAX, platforms, &platform_count) != CL_SUCCESS) {
        return 0;
    }
    for (uint32_t p = 0; p < platform_count && p < OPENCL_DEVICES_MAX; p++) {
        uint32_t found = 0;
        if (cl->GetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, OPENCL_DEVICES_MAX, ids, &found) !=
            CL_SUCCESS) {
            continue;
        }
        for (uint32_t d = 0; d < found && d < OPENCL_DEVICES_MAX && count < OPENCL_DEVICES_MAX;
             d++) {
            memset(&device[count], 0, sizeof device[count]);
            device[count].id = ids[d];
            describe(cl, platforms[p], &device[count++]);
        }
    }
    return count;
}

#endif
