/* Threads. There is one team, which stands from the first call that is worth it: one caller at a time leads it, others
 * that come meanwhile run serially (a team for each Python thread would oversubscribe the cores). Its threads are
 * OpenMP's, in a parallel region that a further thread, the keeper, has entered and sleeps in: so no caller waits at a
 * region's end, where one thread that the system has taken off its processor holds up all. A caller waits only for
 * tasks that others have claimed. After a fork the child has no team left and runs serially: libgomp would hang. */
#define _GNU_SOURCE
#include "parallel.h"
#include "processors.h"
#include "system_threads.h"
#include "wait.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

#include "../include/fusedops/fusedops.h"
#include "../machine/tune.h"

#ifdef _OPENMP
#include <omp.h>
enum { TEAMS = 1 };
#else
enum { TEAMS = 0 };
static int omp_get_max_threads(void) { return 1; }
static int omp_get_thread_num(void) { return 0; }
static int omp_get_num_threads(void) { return 1; }
static int omp_in_parallel(void) { return 0; }
static void omp_set_num_threads(int n) { (void)n; }
static int omp_get_num_procs(void) { return 0; }
static int omp_get_num_places(void) { return 0; }
static int omp_get_place_num_procs(int place) { return (void)place, 0; }
#endif

enum { TWO_LINES = 128 };

static atomic_int wanted;   /* threads that the caller asked for; 0: the default */
static int default_threads; /* what the machine allows */
static int openmp_at_start; /* OpenMP's own limit, before anyone lowered it */
static __thread int raised; /* what it is in this thread, where more threads than those were asked for; else 0 */
static __thread int own;    /* most threads of operations that this thread starts; 0: no limit of its own */
static atomic_flag team_taken = ATOMIC_FLAG_INIT;
static atomic_int team_used, forked, small_stacks;
static int_fast64_t awake_ns; /* 0 where OpenMP's threads shall not wait actively */
/* threads that the team was opened for, and has (fewer, with OMP_DYNAMIC); only who leads it looks at them */
static int asked, size;
static atomic_int opened; /* its size, as its threads tell */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t reopen = PTHREAD_COND_INITIALIZER; /* asked has grown */

typedef void units(void *context, ptrdiff_t first, ptrdiff_t end, int thread);

/* What a member of the team knows of the loop: its own range of units, tasks or quarters of them, from whose front it
 * claims; who has nothing left claims from the back of another's. The memory that the tasks of one loop wrote is read
 * by the next loop's tasks of the same place, so each stays with one processor's cache. All that a member looks at lies
 * in its own line, and the rest changes only between loops: who has claimed a task by an exchange of the range has read
 * what belongs to it. */
typedef struct {
    /* the loop's number, first and end of the units that nobody has claimed */
    _Alignas(TWO_LINES) atomic_uint_fast64_t range;
    _Atomic(units *) fn;
    _Atomic(void *) context;
    atomic_int whole, members, ends;               /* units of a task */
    _Alignas(TWO_LINES) atomic_uint_fast64_t done; /* units in all loops */
    atomic_int_fast64_t begun;                     /* when it claimed last; 0: it has not */
    atomic_int asleep;
    pthread_mutex_t bed;
    pthread_cond_t called;
} member;
static member team[MAX_THREADS];     /* the leader is the first */
static uint_fast64_t loops, claimed; /* loops and units in all */
static __thread int region;          /* the size of the team that this thread leads: OpenMP's parallel region */
static __thread int used;            /* whether it has led one since it was last asked */

static void in_child(void) {
    if (atomic_load(&team_used)) atomic_store(&forked, 1);
    atomic_flag_clear(&team_taken);
}

/* Processors of OpenMP's places (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY): it has bound the thread that loaded it
 * to the first of them, and that thread's mask tells of no other. 0: it binds none. */
static int processors_of_places(void) {
    int n = 0;
    for (int i = omp_get_num_places(); i-- > 0;) n += omp_get_place_num_procs(i);
    return n < omp_get_num_procs() ? n : omp_get_num_procs(); /* places may overlap */
}

/* When the library is loaded: the first call may come while threadpoolctl holds OpenMP's limit down. */
__attribute__((constructor)) static void start(void) {
    int n = fo_processors(processors_of_places());
    openmp_at_start = omp_get_max_threads();
    if (openmp_at_start < n) n = openmp_at_start;
    default_threads = n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : n;
    pthread_atfork(NULL, NULL, in_child);
    const char *policy = getenv("OMP_WAIT_POLICY");
    awake_ns = policy && !strcasecmp(policy, "passive") ? 0 : FO_AWAKE_NS;
}

/* Who asks for more threads than OpenMP has raises its limit, in this thread: or threadpoolctl, which sets that limit,
 * could not be told from nobody where it sets what was there. */
void fo_set_num_threads(int n) {
    const int limit = omp_get_max_threads();
    atomic_store(&wanted, n);
    if (limit != openmp_at_start && limit != raised) return; /* someone lowered it: it stays so */
    raised = n > openmp_at_start ? n : 0;
    omp_set_num_threads(raised ? raised : openmp_at_start);
}

int fo_get_num_threads(void) {
    if (atomic_load_explicit(&forked, memory_order_relaxed)) return 1; /* a child has no other thread of OpenMP */
    int n = atomic_load_explicit(&wanted, memory_order_relaxed), limit = omp_get_max_threads();
    if (!n) n = default_threads;
    if (own && own < n) n = own;
    return limit < (raised ? raised : openmp_at_start) && limit < n ? limit : n; /* threadpoolctl has lowered it */
}

int fo_limit_threads(int n) {
    const int before = own;
    own = n;
    return before;
}

const char *fo_threading(void) {
#ifdef _OPENMP
    if (atomic_load(&small_stacks))
        return "serial: OpenMP's threads have less than the 128 KB of stack that they need; raise OMP_STACKSIZE";
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

fo_team fo_region_team(void) { return (fo_team){FO_SHARING_NS, region ? region : fo_get_num_threads()}; }

fo_team fo_team_here(void) {
    fo_team team = fo_region_team();
    if (!region) team.least = FO_TEAM_NS;
    return team;
}

int fo_threads_for(double nanoseconds) {
    if (nanoseconds < (region ? FO_SHARING_NS : FO_TEAM_NS)) return 1; /* soon said, for small jobs */
    return fo_region_team().threads;
}

static void run_serial(ptrdiff_t all, int whole, units *fn, void *context) {
    fo_fp_mode saved = fo_enter_flush();
    for (ptrdiff_t first = 0; first < all; first += whole) fn(context, first, first + whole, 0);
    fo_leave_flush(saved);
}

/* of a unit's number; the rest is the loop's, which must not come round while a thread is not scheduled */
enum { BITS = 16, MAX_UNITS = (1 << BITS) - 1 /* their end is a number of these bits, too */ };
#define NO_LOOP UINT64_MAX /* before the first */
static inline uint_fast64_t range_of(uint_fast64_t number, uint_fast64_t first, uint_fast64_t end) {
    return number << 2 * BITS | first << BITS | end;
}
static inline uint_fast64_t end_of(uint_fast64_t range) { return range & MAX_UNITS; }
static inline uint_fast64_t first_of(uint_fast64_t range) { return end_of(range >> BITS); }

/* Whether a member that has one task left is late: another claimed its last over a third of a task's time ago. */
static bool is_late(int thread) {
    const int members = atomic_load_explicit(&team[thread].members, memory_order_relaxed);
    const int_fast64_t now = now_ns(), before = atomic_load_explicit(&team[thread].begun, memory_order_relaxed);
    const int_fast64_t least = before && now - before > 3 * FO_LATE_NS ? (now - before) / 3 : FO_LATE_NS;
    for (int i = 0; i < members; i++) {
        const uint_fast64_t r = atomic_load_explicit(&team[i].range, memory_order_relaxed);
        if (i != thread && first_of(r) == end_of(r) &&
            now - atomic_load_explicit(&team[i].begun, memory_order_relaxed) > least)
            return true;
    }
    return false;
}

/* Units of the next claim from a range: a task, but less of the last one where its member is late or does not take it
 * itself. */
static uint_fast64_t next_claim(int thread, bool own, uint_fast64_t range, uint_fast64_t whole) {
    const uint_fast64_t left = end_of(range) - first_of(range);
    if (left > whole || whole == 1 || (own && left == whole && !is_late(thread))) return whole;
    return (left + 1) / 2;
}

/* Runs what is left of a member's units, as long as they are of that loop. */
static void run_range(int thread, atomic_uint_fast64_t *range, uint_fast64_t loop) {
    member *mine = &team[thread];
    uint_fast64_t r = atomic_load_explicit(range, memory_order_acquire);
    while (r >> 2 * BITS == loop && first_of(r) < end_of(r)) {
        units *fn = atomic_load_explicit(&mine->fn, memory_order_relaxed);
        void *context = atomic_load_explicit(&mine->context, memory_order_relaxed);
        const int whole = atomic_load_explicit(&mine->whole, memory_order_relaxed);
        const bool own = range == &mine->range;
        const uint_fast64_t n = next_claim(thread, own, r, (uint_fast64_t)whole);
        const uint_fast64_t first = own ? first_of(r) : end_of(r) - n;
        const uint_fast64_t rest = own ? range_of(loop, first + n, end_of(r)) : range_of(loop, first_of(r), first);
        if (!atomic_compare_exchange_weak_explicit(range, &r, rest, memory_order_acq_rel, memory_order_acquire))
            continue;
        if (whole > 1) atomic_store_explicit(&mine->begun, now_ns(), memory_order_relaxed);
        fn(context, (ptrdiff_t)first, (ptrdiff_t)(first + n), thread);
        atomic_fetch_add_explicit(&mine->done, n, memory_order_release);
        r = rest;
    }
}

/* A member's part of a loop, and what it can take of the others'. */
static void run_loop(int thread, uint_fast64_t loop) {
    const int members = atomic_load_explicit(&team[thread].members, memory_order_relaxed);
    for (int i = 0; i < members; i++) run_range(thread, &team[(thread + i) % members].range, loop);
}

/* Wakes a member that sleeps, after something it has to look at. */
static void call(member *m) {
    if (!atomic_load(&m->asleep)) return;
    pthread_mutex_lock(&m->bed);
    pthread_cond_signal(&m->called);
    pthread_mutex_unlock(&m->bed);
}

/* Deals out the units of a loop, whose number it returns. */
static uint_fast64_t deal(ptrdiff_t tasks, int whole, int threads, units *fn, void *context) {
    const uint_fast64_t all = (uint_fast64_t)tasks, each = (uint_fast64_t)whole;
    const uint_fast64_t loop = ++loops & (((uint_fast64_t)1 << (64 - 2 * BITS)) - 1);
    claimed += all * each;
    for (int i = threads; i-- > 0;) {
        member *m = &team[i];
        atomic_store_explicit(&m->fn, fn, memory_order_relaxed);
        atomic_store_explicit(&m->context, context, memory_order_relaxed);
        atomic_store_explicit(&m->whole, whole, memory_order_relaxed);
        atomic_store_explicit(&m->members, threads, memory_order_relaxed);
        atomic_store_explicit(&m->begun, 0, memory_order_relaxed);
        atomic_store(&m->range, range_of(loop, all * i / threads * each, all * (i + 1) / threads * each));
        call(m);
    }
    return loop;
}

/* A loop of the team. A member that the system lets wait is not waited for, unless it has claimed a task. */
static void share(ptrdiff_t tasks, int whole, int threads, units *fn, void *context) {
    const int members = region;
    const uint_fast64_t loop = deal(tasks, whole, threads, fn, context);
    fo_fp_mode saved = fo_enter_flush();
    region = 0; /* a loop inside a task is serial */
    run_loop(0, loop);
    uint_fast64_t done = 0;
    for (int spins = 0; done != claimed; fo_wait_for_others(spins++)) {
        done = 0;
        for (int i = 0; i < asked; i++) done += atomic_load_explicit(&team[i].done, memory_order_acquire);
    }
    region = members;
    fo_leave_flush(saved);
}

/* Who has no loop but that one says that it sleeps, then looks once more; who has a task for it writes that, then looks
 * whether it sleeps: one of them sees the other. */
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
    fo_fp_mode saved = fo_enter_flush();
    for (int looks = 0; !atomic_load_explicit(&m->ends, memory_order_acquire); fo_wait_for_others(looks++)) {
        const uint_fast64_t now = atomic_load_explicit(&m->range, memory_order_acquire) >> 2 * BITS;
        if (now != loop)
            run_loop(thread, loop = now), looks = 0;
        else if (looks == FO_SPINS)
            end = now_ns() + awake_ns;
        else if (looks > FO_SPINS && now_ns() > end)
            sleep_until_called(m, loop), looks = 0; /* what it was called for does not wait for other processes */
    }
    fo_leave_flush(saved);
}

/* In OpenMP's parallel region: its first thread is the keeper, who sleeps until the team shall be larger. */
static void be_member(int members) {
    const int thread = omp_get_thread_num();
    if (thread && !fo_has_stack()) atomic_store(&small_stacks, 1);
#ifdef _OPENMP
#pragma omp barrier
#endif
    const bool serial = atomic_load(&small_stacks);
    if (thread) {
        if (!serial) help(thread);
        return;
    }
    atomic_store(&opened, serial ? 1 : omp_get_num_threads());
    pthread_mutex_lock(&gate);
    while (!serial && asked == members) pthread_cond_wait(&reopen, &gate);
    pthread_mutex_unlock(&gate);
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
        be_member(members);
    }
    return unused;
}

/* Opens the team for so many; false where they do not start. */
static bool open_team(int threads) {
    if (!fo_threads_start(threads - size)) return false; /* a keeper, too, at first */
    if (!size && !fo_start_quietly(keep_team)) return false;
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
    for (int spins = 0; !atomic_load(&opened); spins++) fo_wait_for_others(spins);
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
    region = size < threads ? size : threads;
    return true;
}

static void leave_team(void) {
    region = 0;
    atomic_flag_clear(&team_taken);
}

void fo_parallel_region(void (*fn)(void *context), void *context) {
    const bool leads = !region && lead_team(fo_get_num_threads());
    fn(context);
    if (leads) leave_team();
}

int fo_led_team(void) {
    const int was = used;
    used = 0;
    return was;
}

/* Runs tasks, each of so many units, on this thread's team, or on a new one. */
static void run(ptrdiff_t tasks, int whole, int threads, units *fn, void *context) {
    const int most = tasks < threads ? (int)tasks : threads;
    const bool leads = !region && lead_team(most);
    if (region && most > 1)
        share(tasks, whole, most < region ? most : region, fn, context);
    else
        run_serial(tasks * whole, whole, fn, context);
    if (leads) leave_team();
}

typedef struct {
    fo_task *fn;
    void *context;
    ptrdiff_t tasks, grain; /* a unit is so many tasks */
} plain_loop;

static void plain_units(void *context, ptrdiff_t first, ptrdiff_t end, int thread) {
    const plain_loop *l = context;
    for (ptrdiff_t t = first * l->grain; t < end * l->grain && t < l->tasks; t++) l->fn(l->context, t, thread);
}

void fo_parallel_for(ptrdiff_t tasks, int threads, fo_task *fn, void *context) {
    plain_loop l = {fn, context, tasks, tasks > MAX_UNITS ? (tasks - 1) / MAX_UNITS + 1 : 1};
    run(l.grain > 1 ? (tasks + l.grain - 1) / l.grain : tasks, 1, threads, plain_units, &l);
}

typedef struct {
    fo_divided *fn;
    void *context;
} divided_loop;

static void divided_units(void *context, ptrdiff_t first, ptrdiff_t end, int thread) {
    const divided_loop *l = context;
    const ptrdiff_t task = first / FO_TASK_PARTS;
    l->fn(l->context, (fo_piece){task, (int)(first - task * FO_TASK_PARTS), (int)(end - task * FO_TASK_PARTS)}, thread);
}
static void whole_task(void *context, ptrdiff_t task, int thread) {
    divided_units(context, task * FO_TASK_PARTS, (task + 1) * FO_TASK_PARTS, thread);
}

void fo_parallel_pieces(ptrdiff_t tasks, int threads, fo_divided *fn, void *context) {
    divided_loop l = {fn, context};
    if (tasks <= FO_MANY_TASKS * (ptrdiff_t)threads && tasks <= MAX_UNITS / FO_TASK_PARTS)
        run(tasks, FO_TASK_PARTS, threads, divided_units, &l);
    else
        fo_parallel_for(tasks, threads, whole_task, &l);
}

static ptrdiff_t quarter(ptrdiff_t n, ptrdiff_t unit, int q) {
    const ptrdiff_t at = (n * q / FO_TASK_PARTS + unit - 1) / unit * unit;
    return at < n ? at : n;
}

void fo_divide(fo_piece piece, ptrdiff_t unit, ptrdiff_t *at, ptrdiff_t *n) {
    const ptrdiff_t first = quarter(*n, unit, piece.first), end = quarter(*n, unit, piece.end);
    *at += first, *n = end - first;
}

typedef struct {
    fo_member *fn;
    void *context;
    int members;
} membership;

static void member_units(void *context, ptrdiff_t first, ptrdiff_t end, int thread) {
    (void)end, (void)thread;
    const membership *m = context;
    m->fn(m->context, (int)first, m->members);
}

/* Who waits at a barrier has claimed one task: each member claims one. */
void fo_parallel_team(int threads, fo_member *fn, void *context) {
    const bool leads = !region && lead_team(threads);
    membership m = {fn, context, region < threads ? region : threads};
    if (region) {
        share(m.members, 1, m.members, member_units, &m);
    } else {
        m.members = 1;
        run_serial(1, 1, member_units, &m);
    }
    if (leads) leave_team();
}
