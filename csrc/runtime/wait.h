/* What a thread does with its processor: how it waits for another, and what denormals become. */
#ifndef FO_WAIT_H
#define FO_WAIT_H

#include <sched.h>

#include "../machine/tune.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
static inline void pause_(void) { _mm_pause(); }
enum { FLUSH = 0x8040 }; /* MXCSR: flush to zero, denormals are zero */
typedef unsigned fo_fp_mode;
static inline fo_fp_mode fo_enter_flush(void) {
    fo_fp_mode saved = _mm_getcsr();
    if ((saved & FLUSH) != FLUSH) _mm_setcsr(saved | FLUSH);
    return saved;
}
static inline void fo_leave_flush(fo_fp_mode saved) {
    if ((saved & FLUSH) != FLUSH) _mm_setcsr(saved);
}
#elif defined(__aarch64__)
static inline void pause_(void) { __asm__ volatile("yield"); }
typedef unsigned long fo_fp_mode;
static inline fo_fp_mode fo_enter_flush(void) {
    fo_fp_mode saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
    __asm__ volatile("msr fpcr, %0" ::"r"(saved | 1ul << 24));
    return saved;
}
static inline void fo_leave_flush(fo_fp_mode saved) { __asm__ volatile("msr fpcr, %0" ::"r"(saved)); }
#else
static inline void pause_(void) {}
typedef int fo_fp_mode;
static inline fo_fp_mode fo_enter_flush(void) { return 0; }
static inline void fo_leave_flush(fo_fp_mode saved) { (void)saved; }
#endif

/* The spins-th look at what another thread has not done yet. */
static inline void fo_wait_for_others(int spins) {
    if (spins < FO_SPINS)
        pause_();
    else
        sched_yield(); /* more threads than processors: the one that is waited for may need this one */
}

#endif
