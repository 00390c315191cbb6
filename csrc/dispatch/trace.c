/* Which kernel variants ran, in a build for tests (FUSEDOPS_TRACE=1): a set of names, without a lock. */
#include "../kernels/table.h"
#include "trace.h"

#ifdef FO_TRACE
#include <stdatomic.h>
#include <stdint.h>

/* Literals, by their addresses: a name that several units have stands in the set once for each. */
enum { SLOTS = 4096 };
static _Atomic(const char *) ran[SLOTS];

void fo_ran(const char *variant) {
    for (uintptr_t at = ((uintptr_t)variant * 0x9e3779b1u) >> 4, tries = 0; tries < SLOTS; at++, tries++) {
        _Atomic(const char *) *slot = &ran[at % SLOTS];
        const char *there = atomic_load_explicit(slot, memory_order_relaxed);
        if (!there && atomic_compare_exchange_strong(slot, &there, variant)) return;
        if (there == variant) return;
    }
}

int fo_variants_most(void) { return SLOTS; }
const char *fo_variant(int i) { return atomic_load(&ran[i]); }

void fo_forget_variants(void) {
    for (int i = 0; i < SLOTS; i++) atomic_store(&ran[i], NULL);
}
#else
int fo_variants_most(void) { return 0; }
const char *fo_variant(int i) { return (void)i, NULL; }
void fo_forget_variants(void) {}
#endif
