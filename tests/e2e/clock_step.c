// clock_step.c: preloaded into a program, moves its wall clock by the seconds written in the file
// CLOCK_STEP_FILE, while it runs. The monotonic clock and the kernel's own timers stay as they are:
// what a step of the clock by an administrator or by NTP looks like to a process.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

// Read anew each time: the calls are rare, and a test has no other way to say it.
static long offset(void) {
    const char *path = getenv("CLOCK_STEP_FILE");
    FILE *f = path != NULL ? fopen(path, "re") : NULL;
    long seconds = 0;
    if (f == NULL) return 0;
    if (fscanf(f, "%ld", &seconds) != 1) seconds = 0;
    fclose(f);
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    int (*real)(clockid_t, struct timespec *) = NULL;
    *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    int rc = real(clock, out);
    if (rc == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        out->tv_sec += offset();
    return rc;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL) *out = now.tv_sec;
    return now.tv_sec;
}
