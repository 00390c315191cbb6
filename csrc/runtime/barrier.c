/* Threads of a team that wait for one another: at a barrier, or for one that they follow. */
#include "parallel.h"
#include "wait.h"

void fo_barrier_wait(fo_barrier *barrier, int members) {
    if (members == 1) return;
    const int round = atomic_load_explicit(&barrier->round, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&barrier->arrived, 1, memory_order_acq_rel) == members - 1) {
        atomic_store_explicit(&barrier->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&barrier->round, round + 1, memory_order_release);
        return;
    }
    for (int spins = 0; atomic_load_explicit(&barrier->round, memory_order_acquire) == round; spins++)
        fo_wait_for_others(spins);
}

void fo_progress_set(fo_progress *progress, ptrdiff_t done) {
    atomic_store_explicit(&progress->done, done, memory_order_release);
}

void fo_progress_wait(fo_progress *progress, ptrdiff_t done) {
    for (int spins = 0; atomic_load_explicit(&progress->done, memory_order_acquire) < done; spins++)
        fo_wait_for_others(spins);
}
