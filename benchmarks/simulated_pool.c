/* simulated_pool.c - stands in for the engine's thread_pool.c: how cores of different speed would
 * share the same parts.
 *
 * One thread runs all parts, one after another, and measures each. Then the parts are given to
 * simulated cores by the rule of thread_pool.c: own range first, then what other workers have not
 * begun, and nothing that faster cores would have finished sooner. SIMULATED_SPEEDS lists the
 * speeds of the cores, that of thread 0 first; the sums are in the file SIMULATED_RESULT. */
#define _GNU_SOURCE
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "thread_pool.h"

enum { CORES_MAX = 64 };

struct thread_pool {
    int threads;
    float speeds[CORES_MAX];
    double speed_sum;
    double work, alone, simulated; /* ns; alone: of operations that were not cut */
    long rounds, parts;
    FILE *result;
};

static double cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

void split_range(int64_t count, int part, int parts, int64_t *first, int64_t *last) {
    *first = count * part / parts;
    *last = count * (part + 1) / parts;
}

int thread_pool_size(const struct thread_pool *pool) { return pool->threads; }

int64_t thread_pool_waited_ns(const struct thread_pool *pool) {
    (void)pool;
    return 0;
}

/* Returns when the last core ends. */
static double simulate(const struct thread_pool *pool, const double *part_ns, int parts) {
    int64_t next[CORES_MAX], end[CORES_MAX];
    double free_at[CORES_MAX] = {0.0}, last = 0.0;
    for (int core = 0; core < pool->threads; core++) {
        split_range(parts, core, pool->threads, &next[core], &end[core]);
    }
    for (int left = parts; left > 0;) {
        int core = 0;
        for (int other = 1; other < pool->threads; other++) {
            core = free_at[other] < free_at[core] ? other : core;
        }
        if (left <= parts_for_faster(pool->speeds, pool->threads, core)) {
            free_at[core] = INFINITY;
            continue;
        }
        left--;
        int range = core;
        while (next[range] == end[range]) {
            range = (range + 1) % pool->threads;
        }
        free_at[core] += part_ns[next[range]++] / pool->speeds[core];
        last = free_at[core] > last ? free_at[core] : last;
    }
    return last;
}

/* After every round, since the runner ends without closing its pool. */
static void write_result(const struct thread_pool *pool) {
    if (pool->result) {
        rewind(pool->result);
        fprintf(pool->result, "{\"ideal\": %.0f, \"simulated\": %.0f, \"alone\": %.0f, ",
                pool->work / pool->speed_sum, pool->simulated, pool->alone);
        fprintf(pool->result, "\"rounds\": %ld, \"parts\": %ld}\n", pool->rounds, pool->parts);
        fflush(pool->result);
    }
}

void thread_pool_run(struct thread_pool *pool, int parts, thread_pool_task *task, void *context) {
    double *part_ns = parts > 0 ? malloc((size_t)parts * sizeof *part_ns) : NULL;
    if (!part_ns) {
        return;
    }
    double sum = 0.0;
    for (int part = 0; part < parts; part++) {
        double start = cpu_ns();
        task(context, part, parts, 0);
        part_ns[part] = cpu_ns() - start;
        sum += part_ns[part];
    }
    pool->work += sum;
    pool->rounds++;
    pool->parts += parts;
    if (parts == 1) {
        pool->alone += sum / pool->speeds[0];
        pool->simulated += sum / pool->speeds[0];
    } else {
        pool->simulated += simulate(pool, part_ns, parts);
    }
    free(part_ns);
    write_result(pool);
}

struct thread_pool *thread_pool_open(int threads, uint64_t mask) {
    (void)mask;
    struct thread_pool *pool = calloc(1, sizeof *pool);
    const char *speeds = getenv("SIMULATED_SPEEDS");
    for (int core = 0; pool && speeds && core < threads && core < CORES_MAX; core++) {
        char *rest;
        pool->speeds[core] = strtof(speeds, &rest);
        pool->speed_sum += pool->speeds[core];
        speeds = *rest ? rest + 1 : rest;
        pool->threads = core + 1;
    }
    if (pool && getenv("SIMULATED_RESULT")) {
        pool->result = fopen(getenv("SIMULATED_RESULT"), "w");
    }
    return pool;
}

void thread_pool_close(struct thread_pool *pool) { free(pool); }
