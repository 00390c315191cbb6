/* Threads. There is one team, which stands from the first call that is worth it: one caller at a time leads it, others that come meanwhile
 * run serially (a team for each Python thread would oversubscribe the cores). Its threads are OpenMP's, in a parallel region that a
 * further thread, the keeper, has entered and sleeps in: so no caller waits at a region's end, where one thread that the system has
 * taken off its processor holds up all. A caller waits only for tasks that others have claimed.
 * After a fork the child has no team left and runs serially: libgomp would hang. */
#define _GNU_SOURCE
#include "parallel.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "../fusedops.h"

#ifdef _OPENMP
#include <omp.h>
enum { TEAMS = 1 };
#else
enum { TEAMS = 0 };
static int omp_get_max_threads(void) { return 1; }
static int omp_get_thread_num(void) { return 0; }
static int omp_get_num_threads(void) { return 1; }
static int omp_in_parallel(void) { return 0; }
#endif

/* A team that is awake shares a loop within a few hundred nanoseconds. */
#define WORTH_A_TEAM_NS 4000
#define WORTH_SHARING_NS 1500
enum { MOST_THREADS = 1024, LINE = 128 };

/* Looks at a barrier before the processor is offered to others: a fraction of a millisecond, more than a share of a step takes. */
#define SPINS 10000

/* How long a thread without work stays awake after that, at every look offering its processor to others. */
#define AWAKE_NS 4000000

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
static int_fast64_t awake_ns;  /* 0 where OpenMP's threads shall not wait actively */
static int asked, size;        /* threads that the team was opened for, and has (fewer, with OMP_DYNAMIC); only who leads it looks at them */
static atomic_int opened;      /* its size, as its threads tell */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t reopen = PTHREAD_COND_INITIALIZER; /* asked has grown */

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
    atomic_int asleep;
    pthread_mutex_t bed;
    pthread_cond_t called;
} member;
static member team[MOST_THREADS]; /* the leader is the first */
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
    const char *policy = getenv("OMP_WAIT_POLICY");
    awake_ns = policy && !strcasecmp(policy, "passive") ? 0 : AWAKE_NS;
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

int fo_threads_for(double nanoseconds) {
    if (together) return nanoseconds < WORTH_SHARING_NS ? 1 : together;
    if (nanoseconds < WORTH_A_TEAM_NS || atomic_load_explicit(&forked, memory_order_relaxed)) return 1;
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
enum { MOST_CLAIMS = (1 << BITS) - 1 }; /* their end is a number of these bits, too */
#define NO_LOOP UINT64_MAX /* before the first */
static inline uint_fast64_t range_of(uint_fast64_t number, uint_fast64_t first, uint_fast64_t end) {
    return number << 2 * BITS | first << BITS | end;
}
static inline uint_fast64_t end_of(uint_fast64_t range) { return range & MOST_CLAIMS; }
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

/* Wakes a member that sleeps, after something it has to look at. */
static void call(member *m) {
    if (!atomic_load(&m->asleep)) return;
    pthread_mutex_lock(&m->bed);
    pthread_cond_signal(&m->called);
    pthread_mutex_unlock(&m->bed);
}

/* Deals out the tasks of a loop, whose number it returns. */
static uint_fast64_t deal(ptrdiff_t tasks, int threads, fo_task *fn, void *context) {
    const ptrdiff_t grain = (tasks - 1) / MOST_CLAIMS + 1;
    const uint_fast64_t all = (uint_fast64_t)((tasks + grain - 1) / grain), loop = ++loops & (((uint_fast64_t)1 << (64 - 2 * BITS)) - 1);
    claims += all;
    for (int i = threads; i-- > 0;) {
        member *m = &team[i];
        atomic_store_explicit(&m->fn, fn, memory_order_relaxed);
        atomic_store_explicit(&m->context, context, memory_order_relaxed);
        atomic_store_explicit(&m->tasks, tasks, memory_order_relaxed);
        atomic_store_explicit(&m->grain, grain, memory_order_relaxed);
        atomic_store_explicit(&m->members, threads, memory_order_relaxed);
        atomic_store(&m->range, range_of(loop, all * i / threads, all * (i + 1) / threads));
        call(m);
    }
    return loop;
}

/* A loop of the team. A member that the system lets wait is not waited for, unless it has claimed a task. */
static void share(ptrdiff_t tasks, int threads, fo_task *fn, void *context) {
    const int members = together;
    const uint_fast64_t loop = deal(tasks, threads, fn, context);
    fp_mode saved = enter_flush();
    together = 0; /* a loop inside a task is serial */
    run_loop(0, loop);
    uint_fast64_t done = 0;
    for (int spins = 0; done != claims; wait_for_others(spins++)) {
        done = 0;
        for (int i = 0; i < asked; i++) done += atomic_load_explicit(&team[i].done, memory_order_acquire);
    }
    together = members;
    leave_flush(saved);
}

/* Who has no loop but that one says that it sleeps, then looks once more; who has a task for it writes that, then looks whether it
 * sleeps: one of them sees the other. */
static void sleep_until_called(member *m, uint_fast64_t loop) {
    pthread_mutex_lock(&m->bed);
    atomic_store(&m->asleep, 1);
    while (atomic_load(&m->range) >> 2 * BITS == loop && !atomic_load(&m->ends)) pthread_cond_wait(&m->called, &m->bed);
    atomic_store(&m->asleep, 0);
    pthread_mutex_unlock(&m->bed);
}

static void help(int thread) {
    member *m = &team[thread];
    uint_fast64_t loop = NO_LOOP;
    int_fast64_t end = 0;
    fp_mode saved = enter_flush();
    for (int looks = 0; !atomic_load_explicit(&m->ends, memory_order_acquire); wait_for_others(looks++)) {
        const uint_fast64_t now = atomic_load_explicit(&m->range, memory_order_acquire) >> 2 * BITS;
        if (now != loop)
            run_loop(thread, loop = now), looks = 0;
        else if (looks == SPINS)
            end = now_ns() + awake_ns;
        else if (looks > SPINS && now_ns() > end)
            sleep_until_called(m, loop), looks = 0; /* what it was called for does not wait for other processes */
    }
    leave_flush(saved);
}

/* The keeper's life: the team as OpenMP has it, opened anew when it shall be larger. */
static void *keep_team(void *unused) {
    for (int members = 0;;) {
        pthread_mutex_lock(&gate);
        while (asked == members) pthread_cond_wait(&reopen, &gate);
        members = asked;
        pthread_mutex_unlock(&gate);
        for (int i = 0; i < members; i++) atomic_store_explicit(&team[i].ends, 0, memory_order_relaxed);
#ifdef _OPENMP
#pragma omp parallel num_threads(members)
#endif
        if (omp_get_thread_num()) {
            help(omp_get_thread_num());
        } else {
            atomic_store(&opened, omp_get_num_threads());
            pthread_mutex_lock(&gate);
            while (asked == members) pthread_cond_wait(&reopen, &gate);
            pthread_mutex_unlock(&gate);
        }
    }
    return unused;
}

/* The keeper hands down to the team's threads that no signal is theirs, but of faults: who blocks one in the threads it knows waits for it. */
static bool start_keeper(void) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    pthread_t keeper;
    sigset_t none, before;
    sigfillset(&none);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&none, faults[i]);
    pthread_sigmask(SIG_SETMASK, &none, &before);
    const bool started = !pthread_create(&keeper, NULL, keep_team, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started) pthread_detach(keeper);
    return started;
}

/* Opens the team for so many; false where they do not start. */
static bool open_team(int threads) {
    if (!threads_start(threads - size)) return false; /* a keeper, too, at first */
    if (!size && !start_keeper()) return false;
    for (int i = size; i < threads; i++) {
        pthread_mutex_init(&team[i].bed, NULL);
        pthread_cond_init(&team[i].called, NULL);
    }
    for (int i = 1; i < size; i++) {
        atomic_store(&team[i].ends, 1);
        call(&team[i]);
    }
    atomic_store(&opened, 0);
    pthread_mutex_lock(&gate);
    asked = threads;
    pthread_cond_signal(&reopen);
    pthread_mutex_unlock(&gate);
    for (int spins = 0; !atomic_load(&opened); spins++) wait_for_others(spins);
    size = atomic_load(&opened);
    return true;
}

/* Makes this thread the leader of a team of so many, or of as many as there are; false where it has to work alone. */
static bool lead_team(int threads) {
    if (!TEAMS || threads <= 1 || omp_in_parallel() || atomic_flag_test_and_set(&team_taken)) return false;
    atomic_store_explicit(&team_used, 1, memory_order_relaxed);
    if ((threads > asked && !open_team(threads)) || size <= 1) {
        atomic_flag_clear(&team_taken);
        return false;
    }
    used = 1;
    together = size < threads ? size : threads;
    return true;
}

static void leave_team(void) {
    together = 0;
    atomic_flag_clear(&team_taken);
}

void fo_parallel_together(void (*fn)(void *context), void *context) {
    const bool leads = !together && lead_team(fo_get_num_threads());
    fn(context);
    if (leads) leave_team();
}

int fo_led_team(void) {
    const int was = used;
    used = 0;
    return was;
}

void fo_parallel_for(ptrdiff_t tasks, int threads, fo_task *fn, void *context) {
    const int most = tasks < threads ? (int)tasks : threads;
    const bool leads = !together && lead_team(most);
    if (together && most > 1)
        share(tasks, most < together ? most : together, fn, context);
    else
        run_serial(tasks, fn, context);
    if (leads) leave_team();
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
void fo_parallel_team(int threads, fo_member *fn, void *context) {
    const bool leads = !together && lead_team(threads);
    membership m = {fn, context, together < threads ? together : threads};
    if (together) {
        share(m.members, m.members, member_task, &m);
    } else {
        m.members = 1;
        run_serial(1, member_task, &m);
    }
    if (leads) leave_team();
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
