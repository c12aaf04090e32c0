/* pool.c - threads that wait for parts of an operation.
 *
 * The one rule: nobody waits busily for long. A worker looks for new work for some microseconds,
 * since the next operation mostly follows at once, and then sleeps on a futex. Where there are
 * more threads than cores, nobody looks at all: whoever spins would hold up the one waited for.
 *
 * Every worker has a share of the parts, the same in every round, so that it finds in its cache what
 * it left there. Whoever is done takes over what others have not begun: one whose core is slow, or is
 * somebody else's for a while, holds up only the part that it is at. */
#define _GNU_SOURCE
#include "pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 64, PATIENCE_NS = 40000, LOOKS_A_GLANCE = 64 };

struct worker {
    _Alignas(LINE) _Atomic uint64_t left; /* the round; parts of the share that nobody has begun */
    struct pool *pool;
    int number;
    pthread_t thread;
};

struct pool {
    int threads;
    bool crowded; /* more threads than cores */
    uint64_t mask;
    pool_work *work;
    void *context;
    int parts;
    _Atomic bool closing;
    _Alignas(LINE) _Atomic uint32_t round;   /* grows with every piece of work */
    _Alignas(LINE) _Atomic uint32_t sleepers; /* workers that need to be woken */
    _Alignas(LINE) _Atomic uint32_t missing;  /* parts of this round that are not done */
    _Alignas(LINE) _Atomic uint32_t master_sleeps;
    struct worker workers[];
};

static void futex_wait(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int count) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void breathe(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Whether the word left `value` before patience ran out. */
static bool changed_soon(const struct pool *pool, _Atomic uint32_t *word, uint32_t value) {
    if (pool->crowded) return atomic_load_explicit(word, memory_order_acquire) != value;
    int64_t start = now_ns();
    do {
        for (int look = 0; look < LOOKS_A_GLANCE; look++) {
            if (atomic_load_explicit(word, memory_order_acquire) != value) return true;
            breathe();
        }
    } while (now_ns() - start < PATIENCE_NS);
    return false;
}

/* Bind the calling thread to the core that stands at `number` in the mask, counted round. */
static void bind(uint64_t mask, int number) {
    int cores = __builtin_popcountll(mask);
    if (cores == 0) return;
    uint64_t rest = mask;
    for (int skip = number % cores; skip > 0; skip--) rest &= rest - 1;
    uint64_t one = rest & -rest;
    syscall(SYS_sched_setaffinity, 0, sizeof one, &one);
}

void share_of(int64_t count, int part, int parts, int64_t *first, int64_t *last) {
    *first = count * part / parts;
    *last = count * (part + 1) / parts;
}

static int64_t share_size(const struct pool *pool, int number) {
    int64_t first, last;
    share_of(pool->parts, number, pool->threads, &first, &last);
    return last - first;
}

/* Takes the next part of a worker's share, or answers -1. What a round is about may be read only
 * once a part of it has been taken: until then, the round may be over, and another be prepared. */
static int64_t take_part(struct pool *pool, int number) {
    uint64_t left = atomic_load(&pool->workers[number].left);
    while ((uint32_t)left)
        if (atomic_compare_exchange_weak(&pool->workers[number].left, &left, left - 1)) {
            int64_t first, last;
            share_of(pool->parts, number, pool->threads, &first, &last);
            return last - (int64_t)(uint32_t)left;
        }
    return -1;
}

/* Does what there is to do, one's own share first; answers how many parts that were. */
static uint32_t do_parts(struct pool *pool, int self) {
    uint32_t done = 0;
    for (int n = 0; n < pool->threads; n++) {
        int number = (self + n) % pool->threads;
        for (int64_t part; (part = take_part(pool, number)) >= 0; done++)
            pool->work(pool->context, (int)part, pool->parts, self);
    }
    return done;
}

/* The number of a round that was not seen yet; the rounds between were done by others. */
static uint32_t wait_for_round(struct pool *pool, uint32_t seen) {
    if (!changed_soon(pool, &pool->round, seen)) {
        atomic_fetch_add(&pool->sleepers, 1);
        while (atomic_load(&pool->round) == seen) futex_wait(&pool->round, seen);
        atomic_fetch_sub(&pool->sleepers, 1);
    }
    return atomic_load(&pool->round);
}

static void *live(void *argument) {
    struct worker *self = argument;
    struct pool *pool = self->pool;
    bind(pool->mask, self->number);
    for (uint32_t seen = 0;;) {
        seen = wait_for_round(pool, seen);
        if (pool->closing) return NULL;
        uint32_t done = do_parts(pool, self->number);
        if (done && atomic_fetch_sub(&pool->missing, done) == done &&
            atomic_load(&pool->master_sleeps))
            futex_wake(&pool->missing, 1);
    }
}

static void start_round(struct pool *pool) {
    atomic_fetch_add(&pool->round, 1);
    if (atomic_load(&pool->sleepers)) futex_wake(&pool->round, pool->threads);
}

static void wait_for_workers(struct pool *pool) {
    for (;;) {
        uint32_t missing = atomic_load(&pool->missing);
        if (missing == 0) return;
        if (changed_soon(pool, &pool->missing, missing)) continue;
        atomic_store(&pool->master_sleeps, 1);
        missing = atomic_load(&pool->missing);
        if (missing) futex_wait(&pool->missing, missing);
        atomic_store(&pool->master_sleeps, 0);
    }
}

void pool_run(struct pool *pool, int parts, pool_work *work, void *context) {
    if (parts <= 0) return;
    if (pool->threads == 1 || parts == 1) {
        for (int part = 0; part < parts; part++) work(context, part, parts, 0);
        return;
    }
    pool->work = work;
    pool->context = context;
    pool->parts = parts;
    atomic_store(&pool->missing, (uint32_t)parts);
    uint64_t round = (uint64_t)(atomic_load(&pool->round) + 1) << 32;
    for (int number = 0; number < pool->threads; number++)
        atomic_store(&pool->workers[number].left, round | (uint64_t)share_size(pool, number));
    start_round(pool);
    atomic_fetch_sub(&pool->missing, do_parts(pool, 0));
    wait_for_workers(pool);
}

int pool_threads(const struct pool *pool) { return pool->threads; }

void pool_close(struct pool *pool) {
    if (!pool) return;
    pool->closing = true;
    start_round(pool);
    for (int number = 1; number < pool->threads; number++)
        pthread_join(pool->workers[number].thread, NULL);
    free(pool);
}

struct pool *pool_open(int threads, uint64_t mask) {
    size_t size = sizeof(struct pool) + (size_t)threads * sizeof(struct worker);
    struct pool *pool = aligned_alloc(LINE, (size + LINE - 1) / LINE * LINE);
    if (!pool) return NULL;
    *pool = (struct pool){.threads = 1, .mask = mask};
    int cores = mask ? __builtin_popcountll(mask) : threads;
    pool->crowded = threads > cores;
    /* The rounds wait for all threads, so nobody may begin before all are there: parts are shared
     * out by pool->threads, which is read only after the first round has begun. */
    for (int number = 1; number < threads; number++) {
        pool->workers[number] = (struct worker){.pool = pool, .number = number};
        if (pthread_create(&pool->workers[number].thread, NULL, live, &pool->workers[number])) {
            pool_close(pool);
            return NULL;
        }
        pool->threads = number + 1;
    }
    bind(mask, 0);
    return pool;
}
