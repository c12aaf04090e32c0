/* thread_pool.c - worker threads with bounded spinning and work stealing.
 *
 * The one rule: spin for at most SPIN_NS, then wait on a futex. A worker spins first because the
 * next operation usually follows within microseconds. With more threads than cores none spins: a
 * spinning thread would take the core from the thread that it waits for.
 *
 * Each worker owns the same range of the parts in every round, so that it finds in its cache what
 * it left there. A worker that has finished its range takes parts that other workers have not
 * begun: a core that is slow, or busy with another process, delays only the part that it is working
 * on. It does not begin a part if faster workers will have finished all parts by then: their speeds
 * are measured all the time, since clocks and other processes change them. No result depends on who
 * runs a part. */
#define _GNU_SOURCE
#include "thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "int_math.h"
#include "os.h"

enum { SPIN_NS = 40000, LOADS_PER_CLOCK_READ = 64, ROUNDS_PER_MEASUREMENT = 8 };
#define SPEED_MIN 0.01f

struct worker {
    /* High half: the round. Low half: how many parts of this worker's range are not claimed. */
    _Alignas(CACHE_LINE_BYTES) _Atomic uint64_t unclaimed;
    _Atomic int left_to_faster; /* so many unclaimed parts, or fewer, are not for this worker */
    struct thread_pool *pool;
    int number;
    uint32_t done;   /* parts in the round that is measured */
    int64_t busy_ns; /* for them */
    pthread_t thread;
    long id; /* of the thread, as the kernel counts */
};

struct thread_pool {
    int threads;
    bool oversubscribed;       /* more threads than cores */
    uint64_t mask;             /* the cores that the pool may use */
    int core_count, cores[64]; /* where threads are pinned, the fastest core first; 0: nowhere */
    thread_pool_task *task;
    void *context;
    int parts;
    bool measures; /* this round */
    int64_t waited_ns;
    float *speeds; /* of the workers, relative to one another */
    _Atomic bool closing;
    _Atomic uint32_t started;                               /* workers that are on their core */
    _Alignas(CACHE_LINE_BYTES) _Atomic uint32_t round;      /* counts calls of thread_pool_run() */
    _Alignas(CACHE_LINE_BYTES) _Atomic uint32_t sleepers;   /* workers in futex_wait() */
    _Alignas(CACHE_LINE_BYTES) _Atomic uint32_t unfinished; /* parts of this round */
    _Alignas(CACHE_LINE_BYTES) _Atomic uint32_t caller_sleeps;
    struct worker workers[];
};

static void futex_wait(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int count) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

/* For the spin limit and for waits. Phones with older kernels read CLOCK_BOOTTIME by a
 * system call, which would cost more than the loads between two reads. */
static int64_t monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Spins until the word differs from `value`; false: it did not within SPIN_NS. */
static bool spin_until_changed(const struct thread_pool *pool, _Atomic uint32_t *word,
                               uint32_t value) {
    if (pool->oversubscribed) {
        return atomic_load_explicit(word, memory_order_acquire) != value;
    }
    int64_t start = monotonic_ns();
    do {
        for (int load = 0; load < LOADS_PER_CLOCK_READ; load++) {
            if (atomic_load_explicit(word, memory_order_acquire) != value) {
                return true;
            }
            cpu_relax();
        }
    } while (monotonic_ns() - start < SPIN_NS);
    return false;
}

/* The core of a thread; -1: the pool pins no threads. */
static int core_of(const struct thread_pool *pool, int number) {
    return pool->core_count ? pool->cores[number % pool->core_count] : -1;
}

static void pin_thread(const struct thread_pool *pool, int number) {
    if (pool->core_count) {
        set_affinity(UINT64_C(1) << core_of(pool, number));
    }
}

/* How fast a core is, compared with the other cores of the phone; 0: the system does not say. */
static long core_speed(int core) {
    static const char *const nodes[] = {"cpu_capacity", "cpufreq/cpuinfo_max_freq"};
    for (int n = 0; n < 2; n++) {
        char path[96], text[24];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/%s", core, nodes[n]);
        if (read_file_start(path, text, sizeof text) > 0) {
            return strtol(text, NULL, 10);
        }
    }
    return 0;
}

/* Lists the fastest cores of the mask, one per thread. The fastest is first: the caller is thread
 * 0, and runs alone whatever is too small to be cut. */
static void list_cores(struct thread_pool *pool, int threads, uint64_t mask) {
    long speeds[64];
    for (; mask; mask &= mask - 1) {
        int core = __builtin_ctzll(mask), at = pool->core_count++;
        long speed = core_speed(core);
        for (; at > 0 && speeds[at - 1] < speed; at--) {
            speeds[at] = speeds[at - 1];
            pool->cores[at] = pool->cores[at - 1];
        }
        speeds[at] = speed;
        pool->cores[at] = core;
    }
    pool->core_count = pool->core_count < threads ? pool->core_count : threads;
}

void split_range(int64_t count, int part, int parts, int64_t *first, int64_t *last) {
    *first = count * part / parts;
    *last = count * (part + 1) / parts;
}

static int64_t range_size(const struct thread_pool *pool, int number) {
    int64_t first, last;
    split_range(pool->parts, number, pool->threads, &first, &last);
    return last - first;
}

/* Claims the next part of a worker's range, or returns -1. The round's task may be read only after
 * a part of it was claimed: before that, the round may be over and the next one in preparation. */
static int64_t claim_part(struct thread_pool *pool, int number) {
    uint64_t unclaimed = atomic_load(&pool->workers[number].unclaimed);
    while ((uint32_t)unclaimed) {
        if (atomic_compare_exchange_weak(&pool->workers[number].unclaimed, &unclaimed,
                                         unclaimed - 1)) {
            int64_t first, last;
            split_range(pool->parts, number, pool->threads, &first, &last);
            return last - (int64_t)(uint32_t)unclaimed;
        }
    }
    return -1;
}

/* Whether a worker leaves what is unclaimed to faster ones. */
static bool leaves_rest(const struct thread_pool *pool, int worker) {
    int64_t limit = pool->workers[worker].left_to_faster, unclaimed = 0;
    for (int number = 0; limit && number < pool->threads && unclaimed <= limit; number++) {
        unclaimed += (uint32_t)atomic_load(&pool->workers[number].unclaimed);
    }
    return limit && unclaimed <= limit;
}

/* Runs all parts that can be claimed, the worker's own range first; returns how many it ran. */
static uint32_t run_parts(struct thread_pool *pool, int worker) {
    struct worker *self = &pool->workers[worker];
    uint32_t done = 0;
    int64_t start = 0;
    for (int n = 0; n < pool->threads; n++) {
        int number = (worker + n) % pool->threads;
        for (int64_t part; !leaves_rest(pool, worker) && (part = claim_part(pool, number)) >= 0;
             done++) {
            if (done == 0 && pool->measures) {
                start = monotonic_ns();
            }
            pool->task(pool->context, (int)part, pool->parts, worker);
        }
    }
    if (start) {
        self->done = done;
        self->busy_ns = monotonic_ns() - start;
    }
    return done;
}

/* Learns from a round how fast workers are; those that ran no part are slowly believed to be as
 * fast as the others again, so that they are tried. */
static void learn_speeds(struct thread_pool *pool) {
    float *speeds = pool->speeds, believed = 0.0f, measured = 0.0f;
    for (int number = 0; number < pool->threads; number++) {
        const struct worker *worker = &pool->workers[number];
        if (worker->done) {
            believed += speeds[number];
            measured += (float)worker->done / (float)max_i64(1, worker->busy_ns);
        }
    }
    for (int number = 0; number < pool->threads; number++) {
        const struct worker *worker = &pool->workers[number];
        float speed = 1.0f, weight = 1.0f / 64;
        if (worker->done) {
            speed = (float)worker->done / (float)max_i64(1, worker->busy_ns) * believed / measured;
            weight = 1.0f / 4;
        }
        speeds[number] += (speed - speeds[number]) * weight;
        speeds[number] = speeds[number] < SPEED_MIN ? SPEED_MIN : speeds[number];
    }
    for (int number = 0; number < pool->threads; number++) {
        pool->workers[number].left_to_faster = parts_for_faster(speeds, pool->threads, number);
    }
}

/* Returns the number of the current round once it differs from `seen`; rounds in between were
 * completed by other threads. */
static uint32_t wait_for_round(struct thread_pool *pool, uint32_t seen) {
    if (!spin_until_changed(pool, &pool->round, seen)) {
        atomic_fetch_add(&pool->sleepers, 1);
        while (atomic_load(&pool->round) == seen) {
            futex_wait(&pool->round, seen);
        }
        atomic_fetch_sub(&pool->sleepers, 1);
    }
    return atomic_load(&pool->round);
}

static void *worker_main(void *argument) {
    struct worker *self = argument;
    struct thread_pool *pool = self->pool;
    self->id = syscall(SYS_gettid);
    pin_thread(pool, self->number);
    atomic_fetch_add(&pool->started, 1);
    futex_wake(&pool->started, 1);
    for (uint32_t seen = 0;;) {
        seen = wait_for_round(pool, seen);
        if (pool->closing) {
            return NULL;
        }
        uint32_t done = run_parts(pool, self->number);
        if (done && atomic_fetch_sub(&pool->unfinished, done) == done &&
            atomic_load(&pool->caller_sleeps)) {
            futex_wake(&pool->unfinished, 1);
        }
    }
}

static void start_round(struct thread_pool *pool) {
    atomic_fetch_add(&pool->round, 1);
    if (atomic_load(&pool->sleepers)) {
        futex_wake(&pool->round, pool->threads);
    }
}

static void wait_for_workers(struct thread_pool *pool) {
    for (;;) {
        uint32_t unfinished = atomic_load(&pool->unfinished);
        if (unfinished == 0) {
            return;
        }
        if (spin_until_changed(pool, &pool->unfinished, unfinished)) {
            continue;
        }
        atomic_store(&pool->caller_sleeps, 1);
        unfinished = atomic_load(&pool->unfinished);
        if (unfinished) {
            int64_t start = monotonic_ns();
            futex_wait(&pool->unfinished, unfinished);
            pool->waited_ns += monotonic_ns() - start;
        }
        atomic_store(&pool->caller_sleeps, 0);
    }
}

void thread_pool_run(struct thread_pool *pool, int parts, thread_pool_task *task, void *context) {
    if (parts <= 0) {
        return;
    }
    if (pool->threads == 1 || parts == 1) {
        for (int part = 0; part < parts; part++) {
            task(context, part, parts, 0);
        }
        return;
    }
    pool->task = task;
    pool->context = context;
    pool->parts = parts;
    atomic_store(&pool->unfinished, (uint32_t)parts);
    uint64_t round = (uint64_t)(atomic_load(&pool->round) + 1) << 32;
    pool->measures = (round >> 32) % ROUNDS_PER_MEASUREMENT == 0;
    for (int number = 0; number < pool->threads; number++) {
        pool->workers[number].done = 0;
        atomic_store(&pool->workers[number].unclaimed, round | (uint64_t)range_size(pool, number));
    }
    start_round(pool);
    atomic_fetch_sub(&pool->unfinished, run_parts(pool, 0));
    wait_for_workers(pool);
    if (pool->measures) {
        learn_speeds(pool);
    }
}

int thread_pool_size(const struct thread_pool *pool) { return pool->threads; }

void thread_pool_unpin_caller(const struct thread_pool *pool) {
    if (pool->core_count) {
        set_affinity(pool->mask);
    }
}

void thread_pool_pin_caller(const struct thread_pool *pool) { pin_thread(pool, 0); }

int thread_pool_core_of(const struct thread_pool *pool, long thread) {
    for (int number = 0; number < pool->threads; number++) {
        if (pool->workers[number].id == thread) {
            return core_of(pool, number);
        }
    }
    return -1;
}

int64_t thread_pool_waited_ns(const struct thread_pool *pool) { return pool->waited_ns; }

void thread_pool_close(struct thread_pool *pool) {
    if (!pool) {
        return;
    }
    pool->closing = true;
    start_round(pool);
    for (int number = 1; number < pool->threads; number++) {
        pthread_join(pool->workers[number].thread, NULL);
    }
    free(pool);
}

struct thread_pool *thread_pool_open(int threads, uint64_t mask) {
    size_t size =
        sizeof(struct thread_pool) + (size_t)threads * (sizeof(struct worker) + sizeof(float));
    struct thread_pool *pool =
        aligned_alloc(CACHE_LINE_BYTES, (size_t)round_up((int64_t)size, CACHE_LINE_BYTES));
    if (!pool) {
        return NULL;
    }
    *pool = (struct thread_pool){.threads = 1, .mask = mask};
    pool->speeds = (float *)(pool->workers + threads);
    for (int number = 0; number < threads; number++) {
        pool->workers[number] = (struct worker){.pool = pool, .number = number};
        pool->speeds[number] = 1.0f;
    }
    list_cores(pool, threads, mask);
    int cores = mask ? __builtin_popcountll(mask) : threads;
    pool->oversubscribed = threads > cores;
    /* Ranges of parts follow from pool->threads, which workers read only after the first round has
     * begun: so no round may begin before all threads exist. */
    for (int number = 1; number < threads; number++) {
        if (pthread_create(&pool->workers[number].thread, NULL, worker_main,
                           &pool->workers[number])) {
            thread_pool_close(pool);
            return NULL;
        }
        pool->threads = number + 1;
    }
    pool->workers[0].id = syscall(SYS_gettid);
    pin_thread(pool, 0);
    for (uint32_t started; (started = atomic_load(&pool->started)) < (uint32_t)threads - 1;) {
        futex_wait(&pool->started, started);
    }
    return pool;
}
