/* recording.c - records launches in command buffers (cl_khr_command_buffer), so that a part of a
 * step is one command for the host and the driver.
 *
 * The one rule: a driver whose command buffers fail a test, or refuse a part of the plan, is used
 * without them, and facts.note says why. */
#include "launch.h"

#ifndef RUNNER_STATIC

#include "../os.h"

enum { TEST_ITEMS = 16, TEST_ROUNDS = 500, TEST_KERNELS = 8, TEST_REPEATS = 10 };

static const char TEST_SOURCE[] =
    "kernel void test(uint rounds, uint add, global uint *x) {"
    "    uint value = x[get_global_id(0)];"
    "    for (uint i = 0; i < rounds; ++i) { value = 3 * value + add; }"
    "    x[get_global_id(0)] = value;"
    "}";

static void give_up(struct session *session, const char *call, int32_t status) {
    session->records = false;
    format_text(session->facts.note, sizeof session->facts.note, "%s failed with OpenCL error %d",
                call, (int)status);
}

/* The queue is in order, so the commands of a buffer need no synchronisation points. */
cl_handle session_record(struct session *session, const struct launch *launch, int count) {
    const struct command_buffers *cl = &session->buffers;
    int32_t status = 0;
    cl_handle buffer = cl->CreateCommandBufferKHR(1, &session->queue, NULL, &status);
    if (buffer == NULL) {
        give_up(session, "clCreateCommandBufferKHR", status);
        return NULL;
    }
    for (int i = 0; i < count && status == CL_SUCCESS; i++) {
        status = cl->CommandNDRangeKernelKHR(buffer, NULL, NULL, launch[i].kernel,
                                             (uint32_t)launch[i].dims, NULL, launch[i].size,
                                             launch[i].group, 0, NULL, NULL, NULL);
    }
    if (status != CL_SUCCESS) {
        give_up(session, "clCommandNDRangeKernelKHR", status);
        return NULL;
    }
    status = cl->FinalizeCommandBufferKHR(buffer);
    if (status != CL_SUCCESS) {
        give_up(session, "clFinalizeCommandBufferKHR", status);
        return NULL;
    }
    return buffer;
}

bool session_submit(struct session *session, cl_handle recorded, enum phase phase) {
    cl_handle *slot = session_next_event(session, phase, false), event = NULL;
    int32_t status = session->buffers.EnqueueCommandBufferKHR(0, NULL, recorded, 0, NULL, &event);
    if (status != CL_SUCCESS) {
        session->timed_count -= slot != NULL;
        give_up(session, "clEnqueueCommandBufferKHR", status);
    } else if (slot != NULL) {
        *slot = event;
    } else {
        session->cl.ReleaseEvent(event);
    }
    return status == CL_SUCCESS;
}

/* ---- the test ---- */

/* Kernels of which each needs the result of the one before it. */
static bool prepare_test(struct session *session, cl_handle memory,
                         struct launch launch[TEST_KERNELS]) {
    const char *source = TEST_SOURCE;
    const struct opencl *cl = &session->cl;
    const uint32_t rounds = TEST_ROUNDS;
    int32_t status = 0;
    cl_handle program = cl->CreateProgramWithSource(session->context, 1, &source, NULL, &status);
    bool fine = program != NULL && cl->BuildProgram(program, 1, &session->facts.device.id, "-w",
                                                    NULL, NULL) == CL_SUCCESS;
    for (uint32_t add = 0; add < TEST_KERNELS && fine; add++) {
        cl_handle kernel = cl->CreateKernel(program, "test", &status);
        launch[add] =
            (struct launch){.kernel = kernel, .dims = 1, .size = {TEST_ITEMS}, .group = {1}};
        fine = kernel != NULL &&
               cl->SetKernelArg(kernel, 0, sizeof rounds, &rounds) == CL_SUCCESS &&
               cl->SetKernelArg(kernel, 1, sizeof add, &add) == CL_SUCCESS &&
               cl->SetKernelArg(kernel, 2, sizeof memory, &memory) == CL_SUCCESS;
    }
    return fine;
}

/* The value of every item after both runs of the kernels, singly and recorded. */
static uint32_t expected_value(void) {
    uint32_t value = 0;
    for (int run = 0; run < 2 * TEST_REPEATS; run++) {
        for (uint32_t i = 0; i < TEST_KERNELS * TEST_ROUNDS; i++) {
            value = 3 * value + i / TEST_ROUNDS;
        }
    }
    return value;
}

/* The least time of the kernels by both clocks, and the most by that of the device. */
struct test_times {
    int64_t wall_ns, least_ns, most_ns;
};

/* Times the kernels, submitted as `recorded`, or singly where it is NULL. */
static struct test_times time_kernels(struct session *session, struct launch *launch,
                                      cl_handle recorded) {
    struct test_times test = {INT64_MAX, INT64_MAX, 0};
    struct device_times times;
    for (int run = 0; run < TEST_REPEATS; run++) {
        int64_t start = now_ns();
        bool submitted = recorded != NULL && session_submit(session, recorded, PHASE_FORWARD);
        for (int i = 0; i < TEST_KERNELS && !submitted; i++) {
            session_launch(session, &launch[i], NULL, NULL);
        }
        session_wait(session);
        test.wall_ns = min_i64(test.wall_ns, now_ns() - start);
        session_collect_times(session, &times);
        if (times.valid) { /* PoCL may return from clFinish() before the last event has its times */
            test.least_ns = min_i64(test.least_ns, times.ns[DEVICE_COMPUTE]);
            test.most_ns = max_i64(test.most_ns, times.ns[DEVICE_COMPUTE]);
        }
    }
    return test;
}

static bool items_are(struct session *session, cl_handle memory, uint32_t expected) {
    uint32_t x[TEST_ITEMS] = {0};
    struct device_times unused;
    session_copy(session, memory, x, sizeof x, false, true, PHASE_LOAD);
    session_collect_times(session, &unused);
    bool equal = true;
    for (int i = 0; i < TEST_ITEMS; i++) {
        equal = equal && x[i] == expected;
    }
    return equal;
}

/* Reports a problem that the driver itself did not report. */
static void report_problem(struct session *session, const char *problem) {
    if (session->records) {
        session->records = false;
        format_text(session->facts.note, sizeof session->facts.note, "%s", problem);
    }
}

void session_test_recording(struct session *session, bool forced) {
    struct launch launch[TEST_KERNELS];
    struct fault unused = {STATUS_DONE, ""};
    const uint32_t zero[TEST_ITEMS] = {0};
    session->records =
        opencl_command_buffers(&session->cl, &session->facts.device, &session->buffers);
    if (!session->records) {
        return;
    }
    cl_handle memory = session_buffer(session, sizeof zero, false, &unused);
    if (memory == NULL || !prepare_test(session, memory, launch)) {
        report_problem(session, "the test of command buffers does not build");
        return;
    }
    session_copy(session, memory, (void *)zero, sizeof zero, true, true, PHASE_LOAD);
    struct test_times single = time_kernels(session, launch, NULL);
    struct test_times recorded =
        time_kernels(session, launch, session_record(session, launch, TEST_KERNELS));
    if (!items_are(session, memory, expected_value())) {
        report_problem(session, "the command buffers of the driver compute a wrong result");
    } else if (forced) {
        session->untimed = recorded.most_ns < single.least_ns / 2;
    } else if (recorded.most_ns < single.least_ns / 2) {
        report_problem(session, "the timestamps of command buffers do not cover their kernels");
    } else if (4 * recorded.wall_ns > 5 * single.wall_ns) {
        report_problem(session, "the command buffers of the driver take longer than launches");
    }
}

#endif
