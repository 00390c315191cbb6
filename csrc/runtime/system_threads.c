/* Threads as the system gives them. */
#define _GNU_SOURCE
#include "system_threads.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* Bytes that a thread of the team needs: 128 KB, but for a page that some systems keep of it as a guard. */
enum { MIN_STACK = (128 << 10) - 4096 };

static void *pass(void *gate) {
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

bool fo_threads_start(int n) {
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t threads[MAX_THREADS];
    int started = 0;
    pthread_mutex_lock(&gate);
    while (started < n && !pthread_create(&threads[started], NULL, pass, &gate)) started++;
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    return started == n;
}

bool fo_start_quietly(void *(*fn)(void *)) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    pthread_t thread;
    sigset_t none, before;
    sigfillset(&none);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&none, faults[i]);
    pthread_sigmask(SIG_SETMASK, &none, &before);
    const bool started = !pthread_create(&thread, NULL, fn, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started) pthread_detach(thread);
    return started;
}

bool fo_has_stack(void) {
    size_t bytes = MIN_STACK;
#ifdef __linux__
    pthread_attr_t own;
    void *lowest;
    if (pthread_getattr_np(pthread_self(), &own)) return true;
    pthread_attr_getstack(&own, &lowest, &bytes);
    pthread_attr_destroy(&own);
#endif
    return bytes >= MIN_STACK;
}
