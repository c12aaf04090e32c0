/* thread_pool.c - worker threads with bounded spinning and work stealing.
 *
 * The one rule: spin for at most SPIN_NS, then wait on a futex. A worker spins first because the
 * next operation usually follows within microseconds. With more threads than cores none spins: a
 * spinning thread would take the core from the thread that it waits for.
 *
 * Each worker owns the same range of the parts in every round, so that it finds in its cache what
 * it left there. A worker that has finished its range takes parts that other workers have not
 * begun: a core that is slow, or busy with another process, delays only the part that it is working
 * on. */
#define _GNU_SOURCE
#include "thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "int_math.h"

enum { SPIN_NS = 40000, LOADS_PER_CLOCK_READ = 64 };

struct worker {
    /* High half: the round. Low half: how many parts of this worker's range are not claimed. */
    _Alignas(CACHE_LINE_BYTES) _Atomic uint64_t unclaimed;
    struct thread_pool *pool;
    int number;
    pthread_t thread;
};

struct thread_pool {
    int threads;
    bool oversubscribed; /* more threads than cores */
    uint64_t mask;
    thread_pool_task *task;
    void *context;
    int parts;
    _Atomic bool closing;
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

/* For the spin limit only, never reported. Phones with older kernels read CLOCK_BOOTTIME by a
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

/* Pins the calling thread to core number `number` of the mask, counted around. */
static void pin_thread(uint64_t mask, int number) {
    int cores = __builtin_popcountll(mask);
    if (cores == 0) {
        return;
    }
    uint64_t rest = mask;
    for (int skip = number % cores; skip > 0; skip--) {
        rest &= rest - 1;
    }
    uint64_t one = rest & -rest;
    syscall(SYS_sched_setaffinity, 0, sizeof one, &one);
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

/* Runs all parts that can be claimed, the worker's own range first; returns how many it ran. */
static uint32_t run_parts(struct thread_pool *pool, int worker) {
    uint32_t done = 0;
    for (int n = 0; n < pool->threads; n++) {
        int number = (worker + n) % pool->threads;
        for (int64_t part; (part = claim_part(pool, number)) >= 0; done++) {
            pool->task(pool->context, (int)part, pool->parts, worker);
        }
    }
    return done;
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
    pin_thread(pool->mask, self->number);
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
            futex_wait(&pool->unfinished, unfinished);
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
    for (int number = 0; number < pool->threads; number++) {
        atomic_store(&pool->workers[number].unclaimed, round | (uint64_t)range_size(pool, number));
    }
    start_round(pool);
    atomic_fetch_sub(&pool->unfinished, run_parts(pool, 0));
    wait_for_workers(pool);
}

int thread_pool_size(const struct thread_pool *pool) { return pool->threads; }

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
    size_t size = sizeof(struct thread_pool) + (size_t)threads * sizeof(struct worker);
    struct thread_pool *pool =
        aligned_alloc(CACHE_LINE_BYTES, (size_t)round_up((int64_t)size, CACHE_LINE_BYTES));
    if (!pool) {
        return NULL;
    }
    *pool = (struct thread_pool){.threads = 1, .mask = mask};
    int cores = mask ? __builtin_popcountll(mask) : threads;
    pool->oversubscribed = threads > cores;
    /* Ranges of parts follow from pool->threads, which workers read only after the first round has
     * begun: so no round may begin before all threads exist. */
    for (int number = 1; number < threads; number++) {
        pool->workers[number] = (struct worker){.pool = pool, .number = number};
        if (pthread_create(&pool->workers[number].thread, NULL, worker_main,
                           &pool->workers[number])) {
            thread_pool_close(pool);
            return NULL;
        }
        pool->threads = number + 1;
    }
    pin_thread(mask, 0);
    return pool;
}
