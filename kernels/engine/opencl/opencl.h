/* opencl.h - the part of OpenCL 1.2 that this runner uses, by the names of the specification.
 *
 * No vendor header is needed and no library is linked: library.c loads the library of the phone and
 * fills `struct opencl`, one pointer per function listed in OPENCL_FUNCTIONS. */
#ifndef FARM_OPENCL_H
#define FARM_OPENCL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../fault.h"

/* Platforms, devices, contexts, queues, memory, programs, kernels and events are all handles. */
typedef void *cl_handle;

enum {
    CL_SUCCESS = 0,
    CL_PLATFORM_NAME = 0x0902,
    CL_DEVICE_TYPE = 0x1000,
    CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
    CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
    CL_DEVICE_IMAGE_SUPPORT = 0x1016,
    CL_DEVICE_MEM_BASE_ADDR_ALIGN = 0x1019,
    CL_DEVICE_GLOBAL_MEM_SIZE = 0x101f,
    CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
    CL_DEVICE_NAME = 0x102b,
    CL_DRIVER_VERSION = 0x102d,
    CL_DEVICE_VERSION = 0x102f,
    CL_DEVICE_EXTENSIONS = 0x1030,
    CL_MEM_READ_WRITE = 1,
    CL_MEM_ALLOC_HOST_PTR = 16,
    CL_MAP_WRITE_INVALIDATE_REGION = 4,
    CL_BUFFER_CREATE_TYPE_REGION = 0x1220,
    CL_QUEUE_PROFILING_ENABLE = 2,
    CL_PROGRAM_BUILD_LOG = 0x1183,
    CL_KERNEL_WORK_GROUP_SIZE = 0x11b0,
    CL_KERNEL_LOCAL_MEM_SIZE = 0x11b2,
    CL_PROFILING_COMMAND_QUEUED = 0x1280,
    CL_PROFILING_COMMAND_START = 0x1282,
    CL_PROFILING_COMMAND_END = 0x1283,
    CL_DEVICE_TYPE_CPU = 2,
    CL_DEVICE_TYPE_GPU = 4
};
#define CL_DEVICE_TYPE_ALL UINT64_C(0xffffffff)

struct cl_region {
    size_t origin, size;
};

/* F(result, name, arguments); library.c looks them up in this order. */
#define OPENCL_FUNCTIONS(F)                                                                        \
    F(int32_t, GetPlatformIDs, (uint32_t, cl_handle *, uint32_t *))                                \
    F(int32_t, GetPlatformInfo, (cl_handle, uint32_t, size_t, void *, size_t *))                   \
    F(int32_t, GetDeviceIDs, (cl_handle, uint64_t, uint32_t, cl_handle *, uint32_t *))             \
    F(int32_t, GetDeviceInfo, (cl_handle, uint32_t, size_t, void *, size_t *))                     \
    F(cl_handle, CreateContext,                                                                    \
      (const void *, uint32_t, const cl_handle *, const void *, void *, int32_t *))                \
    F(cl_handle, CreateCommandQueue, (cl_handle, cl_handle, uint64_t, int32_t *))                  \
    F(cl_handle, CreateBuffer, (cl_handle, uint64_t, size_t, void *, int32_t *))                   \
    F(cl_handle, CreateSubBuffer, (cl_handle, uint64_t, uint32_t, const void *, int32_t *))        \
    F(cl_handle, CreateProgramWithSource,                                                          \
      (cl_handle, uint32_t, const char **, const size_t *, int32_t *))                             \
    F(int32_t, BuildProgram,                                                                       \
      (cl_handle, uint32_t, const cl_handle *, const char *, const void *, void *))                \
    F(int32_t, GetProgramBuildInfo, (cl_handle, cl_handle, uint32_t, size_t, void *, size_t *))    \
    F(cl_handle, CreateKernel, (cl_handle, const char *, int32_t *))                               \
    F(int32_t, GetKernelWorkGroupInfo, (cl_handle, cl_handle, uint32_t, size_t, void *, size_t *)) \
    F(int32_t, SetKernelArg, (cl_handle, uint32_t, size_t, const void *))                          \
    F(int32_t, EnqueueNDRangeKernel,                                                               \
      (cl_handle, cl_handle, uint32_t, const size_t *, const size_t *, const size_t *, uint32_t,   \
       const cl_handle *, cl_handle *))                                                            \
    F(int32_t, EnqueueWriteBuffer,                                                                 \
      (cl_handle, cl_handle, uint32_t, size_t, size_t, const void *, uint32_t, const cl_handle *,  \
       cl_handle *))                                                                               \
    F(int32_t, EnqueueReadBuffer,                                                                  \
      (cl_handle, cl_handle, uint32_t, size_t, size_t, void *, uint32_t, const cl_handle *,        \
       cl_handle *))                                                                               \
    F(void *, EnqueueMapBuffer,                                                                    \
      (cl_handle, cl_handle, uint32_t, uint64_t, size_t, size_t, uint32_t, const cl_handle *,      \
       cl_handle *, int32_t *))                                                                    \
    F(int32_t, EnqueueUnmapMemObject,                                                              \
      (cl_handle, cl_handle, void *, uint32_t, const cl_handle *, cl_handle *))                    \
    F(int32_t, EnqueueFillBuffer,                                                                  \
      (cl_handle, cl_handle, const void *, size_t, size_t, size_t, uint32_t, const cl_handle *,    \
       cl_handle *))                                                                               \
    F(int32_t, Flush, (cl_handle))                                                                 \
    F(int32_t, Finish, (cl_handle))                                                                \
    F(int32_t, GetEventProfilingInfo, (cl_handle, uint32_t, size_t, void *, size_t *))             \
    F(int32_t, ReleaseEvent, (cl_handle))

#define OPENCL_POINTER(result, name, arguments) result(*name) arguments;

struct opencl {
    OPENCL_FUNCTIONS(OPENCL_POINTER)
    void *(*GetExtensionFunctionAddressForPlatform)(cl_handle, const char *); /* or NULL */
};

/* The part of cl_khr_command_buffer that is the same in all its versions. */
#define COMMAND_BUFFER_FUNCTIONS(F)                                                                \
    F(cl_handle, CreateCommandBufferKHR, (uint32_t, const cl_handle *, const void *, int32_t *))   \
    F(int32_t, CommandNDRangeKernelKHR,                                                            \
      (cl_handle, cl_handle, const void *, cl_handle, uint32_t, const size_t *, const size_t *,    \
       const size_t *, uint32_t, const uint32_t *, uint32_t *, cl_handle *))                       \
    F(int32_t, FinalizeCommandBufferKHR, (cl_handle))                                              \
    F(int32_t, EnqueueCommandBufferKHR,                                                            \
      (uint32_t, cl_handle *, cl_handle, uint32_t, const cl_handle *, cl_handle *))

struct command_buffers {
    COMMAND_BUFFER_FUNCTIONS(OPENCL_POINTER)
};

enum { OPENCL_DEVICES_MAX = 8, OPENCL_TEXT_BYTES = 128 };

/* One device, as `info` and tuning files identify it. */
struct opencl_device {
    cl_handle id, platform_id;
    char platform[OPENCL_TEXT_BYTES], name[OPENCL_TEXT_BYTES];
    char version[OPENCL_TEXT_BYTES], driver[OPENCL_TEXT_BYTES];
    uint64_t type, units, global_bytes, max_alloc_bytes, local_bytes, max_group, align_bits, images;
};

/* Loads the library of the vendor. False: fault. */
bool opencl_open(struct opencl *cl, struct fault *fault);

/* Lists the devices of all platforms, in the order of the library; returns how many. */
int opencl_devices(const struct opencl *cl, struct opencl_device device[OPENCL_DEVICES_MAX]);

/* Looks up the functions of cl_khr_command_buffer; false: the device does not have it. */
bool opencl_command_buffers(const struct opencl *cl, const struct opencl_device *device,
                            struct command_buffers *functions);

#endif
