/* Threads. The team is OpenMP's; one caller at a time uses it, others that come meanwhile run serially (a team for each Python
 * thread would oversubscribe the cores). After a fork the child has no team left and runs serially too: libgomp would hang. */
#define _GNU_SOURCE
#include "parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../fusedops.h"

#ifdef _OPENMP
#include <omp.h>
#else
static int omp_get_max_threads(void) { return 1; }
static int omp_get_thread_num(void) { return 0; }
static int omp_get_num_threads(void) { return 1; }
static int omp_in_parallel(void) { return 0; }
#endif

/* A team starts and joins within about a microsecond while its threads are awake: below this, one thread is faster. */
#define WORTH_A_TEAM_NS 4000

/* Looks at a barrier before the processor is offered to others: some microseconds, more than a share of a step takes. */
#define SPINS 10000

#if defined(__x86_64__)
#include <xmmintrin.h>
static inline void pause_(void) { _mm_pause(); }
enum { FLUSH = 0x8040 }; /* MXCSR: flush to zero, denormals are zero */
typedef unsigned fp_mode;
static inline fp_mode enter_flush(void) {
    fp_mode saved = _mm_getcsr();
    if ((saved & FLUSH) != FLUSH) _mm_setcsr(saved | FLUSH);
    return saved;
}
static inline void leave_flush(fp_mode saved) {
    if ((saved & FLUSH) != FLUSH) _mm_setcsr(saved);
}
#elif defined(__aarch64__)
static inline void pause_(void) { __asm__ volatile("yield"); }
typedef unsigned long fp_mode;
static inline fp_mode enter_flush(void) {
    fp_mode saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
    __asm__ volatile("msr fpcr, %0" ::"r"(saved | 1ul << 24));
    return saved;
}
static inline void leave_flush(fp_mode saved) { __asm__ volatile("msr fpcr, %0" ::"r"(saved)); }
#else
static inline void pause_(void) {}
typedef int fp_mode;
static inline fp_mode enter_flush(void) { return 0; }
static inline void leave_flush(fp_mode saved) { (void)saved; }
#endif

static atomic_int wanted;      /* threads that the caller asked for; 0: the default */
static int default_threads;    /* what the machine allows */
static int openmp_at_start;    /* OpenMP's own limit, before anyone lowered it */
static atomic_flag team_taken = ATOMIC_FLAG_INIT;
static atomic_int team_used, forked;

static void in_child(void) {
    if (atomic_load(&team_used)) atomic_store(&forked, 1);
    atomic_flag_clear(&team_taken);
}

/* Processors' worth of time that the cgroup (version 2, then 1) grants, rounded up; 0 where it sets no limit. */
static int cgroup_quota(void) {
    long quota = -1, period = 0;
    char word[32];
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "r");
    if (f) {
        if (fscanf(f, "%31s %ld", word, &period) == 2 && strcmp(word, "max")) quota = atol(word);
        fclose(f);
    } else {
        if ((f = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "r"))) {
            if (fscanf(f, "%ld", &quota) != 1) quota = -1;
            fclose(f);
        }
        if ((f = fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "r"))) {
            if (fscanf(f, "%ld", &period) != 1) period = 0;
            fclose(f);
        }
    }
    return quota > 0 && period > 0 ? (int)((quota + period - 1) / period) : 0;
}

/* When the library is loaded: the first call may come while threadpoolctl holds OpenMP's limit down. */
__attribute__((constructor)) static void start(void) {
    int n = (int)sysconf(_SC_NPROCESSORS_ONLN), quota = cgroup_quota();
#ifdef __linux__
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) n = CPU_COUNT(&set);
#endif
    if (quota && quota < n) n = quota;
    openmp_at_start = omp_get_max_threads();
    if (openmp_at_start < n) n = openmp_at_start;
    default_threads = n < 1 ? 1 : n;
    pthread_atfork(NULL, NULL, in_child);
}

void fo_set_num_threads(int n) { atomic_store(&wanted, n); }

int fo_get_num_threads(void) {
    int n = atomic_load_explicit(&wanted, memory_order_relaxed), limit = omp_get_max_threads();
    if (!n) n = default_threads;
    return limit < openmp_at_start && limit < n ? limit : n; /* threadpoolctl lowers OpenMP's limit */
}

const char *fo_threading(void) {
#ifdef _OPENMP
    return atomic_load(&forked) ? "serial: forked child" : "openmp";
#else
    return "serial: built without OpenMP";
#endif
}

int fo_threads_for(double nanoseconds) {
    return nanoseconds < WORTH_A_TEAM_NS || atomic_load_explicit(&forked, memory_order_relaxed) ? 1 : fo_get_num_threads();
}

typedef struct {
    ptrdiff_t tasks;
    fo_task *fn;
    void *context;
    atomic_ptrdiff_t next;
} job;

static void work(job *j, int thread) {
    fp_mode saved = enter_flush();
    for (ptrdiff_t t; (t = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < j->tasks;) j->fn(j->context, t, thread);
    leave_flush(saved);
}

static void run_serial(ptrdiff_t tasks, fo_task *fn, void *context) {
    fp_mode saved = enter_flush();
    for (ptrdiff_t t = 0; t < tasks; t++) fn(context, t, 0);
    leave_flush(saved);
}

void fo_parallel_for(ptrdiff_t tasks, int threads, fo_task *fn, void *context) {
    if (threads > tasks) threads = (int)tasks;
    if (threads <= 1 || omp_in_parallel() || atomic_flag_test_and_set(&team_taken)) {
        run_serial(tasks, fn, context);
        return;
    }
    job j = {tasks, fn, context, 0};
    atomic_store_explicit(&team_used, 1, memory_order_relaxed);
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
#endif
    work(&j, omp_get_thread_num());
    atomic_flag_clear(&team_taken);
}

static void join_team(fo_member *fn, void *context, int member, int members) {
    fp_mode saved = enter_flush();
    fn(context, member, members);
    leave_flush(saved);
}

void fo_parallel_team(int threads, fo_member *fn, void *context) {
    if (threads <= 1 || omp_in_parallel() || atomic_flag_test_and_set(&team_taken)) {
        join_team(fn, context, 0, 1);
        return;
    }
    atomic_store_explicit(&team_used, 1, memory_order_relaxed);
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
#endif
    join_team(fn, context, omp_get_thread_num(), omp_get_num_threads());
    atomic_flag_clear(&team_taken);
}

void fo_barrier_wait(fo_barrier *barrier, int members) {
    if (members == 1) return;
    const int round = atomic_load_explicit(&barrier->round, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&barrier->arrived, 1, memory_order_acq_rel) == members - 1) {
        atomic_store_explicit(&barrier->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&barrier->round, round + 1, memory_order_release);
        return;
    }
    for (int spins = 0; atomic_load_explicit(&barrier->round, memory_order_acquire) == round; spins++)
        if (spins < SPINS)
            pause_();
        else
            sched_yield(); /* more threads than processors: the one that is waited for may need this one */
}
