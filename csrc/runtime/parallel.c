/* Threads. The team is OpenMP's; one caller at a time uses it, others that come meanwhile run serially (a team for each Python
 * thread would oversubscribe the cores). libgomp keeps the threads of a team for whoever led it: KEPT leaders have them kept, those
 * of a further one end with its job, or there were as many idle threads as callers times cores. After a fork the child has no team left and runs serially too: libgomp would hang. */
#define _GNU_SOURCE
#include "parallel.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "../fusedops.h"

#ifdef _OPENMP
#include <omp.h>
#else
static int omp_get_max_threads(void) { return 1; }
static int omp_get_thread_num(void) { return 0; }
static int omp_get_num_threads(void) { return 1; }
static int omp_in_parallel(void) { return 0; }
static int omp_get_initial_device(void) { return 0; }
enum { omp_pause_soft };
static int omp_pause_resource(int kind, int device) { return kind + device; }
#endif

/* A team starts and joins within about a microsecond while its threads are awake: below this, one thread is faster. */
#define WORTH_A_TEAM_NS 4000

/* A team that is together already shares a loop within a few hundred nanoseconds. */
#define WORTH_SHARING_NS 1500

/* To start threads and to end them takes some ten microseconds for each. */
#define WORTH_NEW_THREADS_NS 200000
enum { KEPT = 2, MOST_THREADS = 1024, LINE = 128 };

/* A team ends when its last thread has run. Where a leader waits longer than this, and than its own part took, the system has given another's
 * processor to other work. Once is chance; where it waits longer than it has worked since it last did, one thread is faster, for so many
 * times the wait. */
#define CROWDED_NS 1000000
enum { ALONE_AFTERWARDS = 16 };

/* Looks at a barrier before the processor is offered to others: a fraction of a millisecond, more than a share of a step takes. */
#define SPINS 10000
static const struct timespec NAP = {0, 20000}; /* of who has looked so often and found nothing to do */

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
static atomic_int_fast64_t alone_until; /* a time on the clock of now_ns; 0: teams are not waited for */
static int_fast64_t worked;      /* how long leaders have, since one waited; only who has the team looks at it */
static atomic_int kept;          /* leaders whose threads are kept */
static __thread int keeps;       /* whether this thread is one of them */
static __thread int led;         /* the size of its team, */
static __thread bool fresh;      /* some of whose threads are only now started */
static pthread_key_t at_exit;    /* tells when such a thread ends */

/* What a member of the team knows of the loop: its own range of tasks, from whose front it claims; who has nothing left claims from the
 * back of another's. The memory that the tasks of one loop wrote is read by the next loop's tasks of the same place, so each stays
 * with one processor's cache. All that a member looks at lies in its own line, and the rest changes only between loops: who has
 * claimed a task by an exchange of the range has read what belongs to it. */
typedef struct {
    _Alignas(LINE) atomic_uint_fast64_t range; /* the loop's number, first and end of the tasks that nobody has claimed */
    _Atomic(fo_task *) fn;
    _Atomic(void *) context;
    atomic_ptrdiff_t tasks, grain; /* a claim is for so many tasks */
    atomic_int members, ends;
    _Alignas(LINE) atomic_uint_fast64_t done; /* claims in all loops together */
} member;
static member team[MOST_THREADS]; /* there is one team at a time */
static uint_fast64_t loops, claims; /* in all */
static __thread int together;     /* the size of the team that this thread leads, between its loops */
static __thread int used;       /* whether it has led one since it was last asked */

static void in_child(void) {
    if (atomic_load(&team_used)) atomic_store(&forked, 1);
    atomic_flag_clear(&team_taken);
}

/* The first numbers of a file, or how many of them there are. A word that is no number ends them. */
static int numbers_of(const char *folder, const char *name, long *a, long *b) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    const int n = fscanf(f, "%ld %ld", a, b);
    fclose(f);
    return n;
}

int fo_cgroup_quota(const char *folder) {
    long quota = 0, period = 0, unused;
    if (numbers_of(folder, "cpu.max", &quota, &period) == -1) {
        numbers_of(folder, "cpu/cpu.cfs_quota_us", &quota, &unused);
        numbers_of(folder, "cpu/cpu.cfs_period_us", &period, &unused);
    }
    if (quota <= 0 || period <= 0) return 0; /* "max" in version 2, -1 in version 1 */
    const long processors = quota / period + (quota % period != 0);
    return processors > INT_MAX ? INT_MAX : (int)processors;
}

static void leader_ends(void *unused) {
    (void)unused;
    atomic_fetch_sub(&kept, 1);
}

/* When the library is loaded: the first call may come while threadpoolctl holds OpenMP's limit down. */
__attribute__((constructor)) static void start(void) {
    int n = (int)sysconf(_SC_NPROCESSORS_ONLN), quota = fo_cgroup_quota("/sys/fs/cgroup");
#ifdef __linux__
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) n = CPU_COUNT(&set);
#endif
    if (quota && quota < n) n = quota;
    openmp_at_start = omp_get_max_threads();
    if (openmp_at_start < n) n = openmp_at_start;
    default_threads = n < 1 ? 1 : n > MOST_THREADS ? MOST_THREADS : n;
    pthread_atfork(NULL, NULL, in_child);
    pthread_key_create(&at_exit, leader_ends);
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

static int_fast64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int_fast64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool crowded(void) {
    const int_fast64_t until = atomic_load_explicit(&alone_until, memory_order_relaxed);
    return until && now_ns() < until;
}

/* A team has ended whose leader worked from `start` to `done`. */
static void note_wait(int_fast64_t start, int_fast64_t done) {
    const int_fast64_t now = now_ns(), wait = now - done;
    worked += done - start < CROWDED_NS ? done - start : CROWDED_NS; /* the leader may have lost its processor, too */
    if (wait <= CROWDED_NS || wait <= done - start) return;
    if (wait > worked) atomic_store_explicit(&alone_until, now + ALONE_AFTERWARDS * wait, memory_order_relaxed);
    worked = 0;
}

int fo_threads_for(double nanoseconds) {
    if (together) return nanoseconds < WORTH_SHARING_NS ? 1 : together;
    if (nanoseconds < WORTH_A_TEAM_NS || atomic_load_explicit(&forked, memory_order_relaxed) || crowded()) return 1;
    if (nanoseconds < WORTH_NEW_THREADS_NS && !keeps && atomic_load_explicit(&kept, memory_order_relaxed) >= KEPT) return 1;
    return fo_get_num_threads();
}

static void *pass(void *gate) {
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* Whether so many threads start, all at once. libgomp ends the process where one does not (a limit on processes or address space). */
static int threads_start(int n) {
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t threads[MOST_THREADS];
    int started = 0;
    pthread_mutex_lock(&gate);
    while (started < n && !pthread_create(&threads[started], NULL, pass, &gate)) started++;
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    return started == n;
}

/* Whether this thread may lead the team; it gives it back with leave_team. */
static int lead_team(int threads) {
    if (threads <= 1 || omp_in_parallel() || atomic_flag_test_and_set(&team_taken)) return 0;
    fresh = threads > led;
    if (fresh && !threads_start(threads - 1)) {
        atomic_flag_clear(&team_taken);
        return 0;
    }
    atomic_store_explicit(&team_used, 1, memory_order_relaxed);
    used = 1;
    if (!keeps && atomic_load_explicit(&kept, memory_order_relaxed) < KEPT) { /* only who has the team counts here */
        keeps = 1;
        atomic_fetch_add(&kept, 1);
        pthread_setspecific(at_exit, &kept);
    }
    if (keeps) led = threads; /* libgomp ends those that a smaller team does not need */
    return 1;
}

static void leave_team(int_fast64_t start, int_fast64_t done) {
    if (!fresh) note_wait(start, done);
    if (!keeps) omp_pause_resource(omp_pause_soft, omp_get_initial_device());
    atomic_flag_clear(&team_taken);
}

static void wait_for_others(int spins) {
    if (spins < SPINS)
        pause_();
    else
        sched_yield(); /* more threads than processors: the one that is waited for may need this one */
}

static void run_serial(ptrdiff_t tasks, fo_task *fn, void *context) {
    fp_mode saved = enter_flush();
    for (ptrdiff_t t = 0; t < tasks; t++) fn(context, t, 0);
    leave_flush(saved);
}

enum { BITS = 16 }; /* of a claim's number; the rest is the loop's, which must not come round while a thread is not scheduled */
#define NO_LOOP UINT64_MAX /* before the first */
static inline uint_fast64_t range_of(uint_fast64_t number, uint_fast64_t first, uint_fast64_t end) {
    return number << 2 * BITS | first << BITS | end;
}
static inline uint_fast64_t end_of(uint_fast64_t range) { return range & ((1 << BITS) - 1); }
static inline uint_fast64_t first_of(uint_fast64_t range) { return end_of(range >> BITS); }

/* Runs what is left of a member's tasks, as long as they are of that loop. */
static void run_range(const member *mine, int thread, atomic_uint_fast64_t *range, uint_fast64_t loop) {
    uint_fast64_t r = atomic_load_explicit(range, memory_order_acquire);
    while (r >> 2 * BITS == loop && first_of(r) < end_of(r)) {
        fo_task *fn = atomic_load_explicit(&mine->fn, memory_order_relaxed);
        void *context = atomic_load_explicit(&mine->context, memory_order_relaxed);
        const ptrdiff_t tasks = atomic_load_explicit(&mine->tasks, memory_order_relaxed), grain = atomic_load_explicit(&mine->grain, memory_order_relaxed);
        const bool own = range == &mine->range;
        const ptrdiff_t first = grain * (ptrdiff_t)(own ? first_of(r) : end_of(r) - 1);
        const uint_fast64_t rest = own ? range_of(loop, first_of(r) + 1, end_of(r)) : range_of(loop, first_of(r), end_of(r) - 1);
        if (!atomic_compare_exchange_weak_explicit(range, &r, rest, memory_order_acq_rel, memory_order_acquire)) continue;
        for (ptrdiff_t t = first; t < tasks && t < first + grain; t++) fn(context, t, thread);
        atomic_fetch_add_explicit(&team[thread].done, 1, memory_order_release);
        r = rest;
    }
}

/* A member's part of a loop, and what it can take of the others'. */
static void run_loop(int thread, uint_fast64_t loop) {
    const int members = atomic_load_explicit(&team[thread].members, memory_order_relaxed);
    for (int i = 0; i < members; i++) run_range(&team[thread], thread, &team[(thread + i) % members].range, loop);
}

/* Deals out the tasks of a loop, whose number it returns. */
static uint_fast64_t deal(ptrdiff_t tasks, int threads, fo_task *fn, void *context) {
    const ptrdiff_t grain = (tasks >> BITS) + 1;
    const uint_fast64_t all = (uint_fast64_t)((tasks + grain - 1) / grain), loop = ++loops & (((uint_fast64_t)1 << (64 - 2 * BITS)) - 1);
    claims += all;
    for (int i = threads; i-- > 0;) {
        member *m = &team[i];
        atomic_store_explicit(&m->fn, fn, memory_order_relaxed);
        atomic_store_explicit(&m->context, context, memory_order_relaxed);
        atomic_store_explicit(&m->tasks, tasks, memory_order_relaxed);
        atomic_store_explicit(&m->grain, grain, memory_order_relaxed);
        atomic_store_explicit(&m->members, threads, memory_order_relaxed);
        atomic_store_explicit(&m->range, range_of(loop, all * i / threads, all * (i + 1) / threads), memory_order_release);
    }
    return loop;
}

/* A loop of a team that is together. A member that the system lets wait is not waited for, unless it has claimed a task. */
static void share(ptrdiff_t tasks, int threads, fo_task *fn, void *context) {
    const int members = together;
    const uint_fast64_t loop = deal(tasks, threads, fn, context);
    fp_mode saved = enter_flush();
    together = 0; /* a loop inside a task is serial */
    run_loop(0, loop);
    uint_fast64_t done = 0;
    for (int spins = 0; done != claims; wait_for_others(spins++)) {
        done = 0;
        for (int i = 0; i < members; i++) done += atomic_load_explicit(&team[i].done, memory_order_acquire);
    }
    together = members;
    leave_flush(saved);
}

static void help(int thread) {
    member *m = &team[thread];
    uint_fast64_t loop = NO_LOOP;
    fp_mode saved = enter_flush();
    for (int looks = 0; !atomic_load_explicit(&m->ends, memory_order_acquire);) {
        const uint_fast64_t now = atomic_load_explicit(&m->range, memory_order_acquire) >> 2 * BITS;
        if (now != loop)
            run_loop(thread, loop = now), looks = 0;
        else if (looks < SPINS)
            looks++, pause_();
        else
            nanosleep(&NAP, NULL);
    }
    leave_flush(saved);
}

/* fn(context) on this thread, as the leader of a team of so many; false where another has the team. */
static bool with_team(int threads, void (*fn)(void *context), void *context) {
    if (!lead_team(threads)) return false;
    const int_fast64_t start = now_ns();
    int_fast64_t done = start;
    claims = 0;
    for (int i = 0; i < threads; i++) {
        atomic_store_explicit(&team[i].done, 0, memory_order_relaxed);
        atomic_store_explicit(&team[i].ends, 0, memory_order_relaxed);
    }
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
#endif
    if (omp_get_thread_num()) {
        help(omp_get_thread_num());
    } else {
        together = omp_get_num_threads();
        fn(context);
        done = now_ns();
        for (int i = 0; i < together; i++) atomic_store_explicit(&team[i].ends, 1, memory_order_release);
        together = 0;
    }
    leave_team(start, done);
    return true;
}

void fo_parallel_together(void (*fn)(void *context), void *context) {
    if (together || crowded() || !with_team(fo_get_num_threads(), fn, context)) fn(context);
}

int fo_led_team(void) {
    const int was = used;
    used = 0;
    return was;
}

/* One loop and no more: the team takes it as it starts, and its end is the loop's. */
static bool run_alone(ptrdiff_t tasks, int threads, fo_task *fn, void *context) {
    if (!lead_team(threads)) return false;
    const int_fast64_t start = now_ns();
    int_fast64_t done = start;
    const uint_fast64_t loop = deal(tasks, threads, fn, context);
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
#endif
    {
        fp_mode saved = enter_flush();
        run_loop(omp_get_thread_num(), loop);
        leave_flush(saved);
        if (!omp_get_thread_num()) done = now_ns();
    }
    leave_team(start, done);
    return true;
}

void fo_parallel_for(ptrdiff_t tasks, int threads, fo_task *fn, void *context) {
    const int most = tasks < threads ? (int)tasks : threads;
    if (together && most > 1)
        share(tasks, most < together ? most : together, fn, context);
    else if (most <= 1 || !run_alone(tasks, most, fn, context))
        run_serial(tasks, fn, context);
}

typedef struct {
    fo_member *fn;
    void *context;
    int members;
} membership;

static void member_task(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const membership *m = context;
    m->fn(m->context, (int)task, m->members);
}

/* Who waits at a barrier has claimed one task: each member claims one. */
static void run_members(void *context) {
    membership *m = context;
    if (m->members > together) m->members = together;
    share(m->members, m->members, member_task, m);
}

void fo_parallel_team(int threads, fo_member *fn, void *context) {
    membership m = {fn, context, threads};
    if (together) {
        run_members(&m);
    } else if (!with_team(threads, run_members, &m)) {
        m.members = 1;
        run_serial(1, member_task, &m);
    }
}

void fo_barrier_wait(fo_barrier *barrier, int members) {
    if (members == 1) return;
    const int round = atomic_load_explicit(&barrier->round, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&barrier->arrived, 1, memory_order_acq_rel) == members - 1) {
        atomic_store_explicit(&barrier->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&barrier->round, round + 1, memory_order_release);
        return;
    }
    for (int spins = 0; atomic_load_explicit(&barrier->round, memory_order_acquire) == round; spins++) wait_for_others(spins);
}

void fo_progress_set(fo_progress *progress, ptrdiff_t done) { atomic_store_explicit(&progress->done, done, memory_order_release); }

void fo_progress_wait(fo_progress *progress, ptrdiff_t done) {
    for (int spins = 0; atomic_load_explicit(&progress->done, memory_order_acquire) < done; spins++) wait_for_others(spins);
}
