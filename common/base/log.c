// log.c: formats a line in one buffer and writes it with one call, so that lines of threads and
// processes do not mix.
#include "common/base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES_MAX 2048

// The log is the one module that may keep file-scope state: it is needed before and after
// everything else.
static _Atomic int current_level = LOG_INFO;
static char process_name[64] = "moesaic";

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

void log_setup(const char *process, enum log_level level) {
    snprintf(process_name, sizeof process_name, "%s", process);
    atomic_store(&current_level, (int)level);
}

void log_set_level(enum log_level level) {
    atomic_store(&current_level, (int)level);
}

bool log_level_parse(const char *name, enum log_level *out) {
    for (int i = 0; i <= LOG_TRACE; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *out = (enum log_level)i;
            return true;
        }
    }
    return false;
}

bool log_enabled(enum log_level level) {
    return (int)level <= atomic_load_explicit(&current_level, memory_order_relaxed);
}

// Control bytes would let outside text forge lines or drive a terminal.
static void make_printable(char *text) {
    for (unsigned char *p = (unsigned char *)text; *p != '\0'; p++) {
        if (*p < 0x20 || *p == 0x7f) *p = '?';
    }
}

void log_write(enum log_level level, const char *area, const char *format, ...) {
    if (!log_enabled(level)) return;
    struct timespec ts;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);
    char line[LINE_BYTES_MAX];
    int n = snprintf(line, sizeof line,
                     "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %-5s %s %s: ", tm.tm_year + 1900,
                     tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                     ts.tv_nsec / 1000000, level_names[level], process_name, area);
    if (n < 0 || n >= (int)sizeof line - 1) return;
    va_list args;
    va_start(args, format);
    vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
    va_end(args);
    make_printable(line + n);
    size_t len = strlen(line);
    line[len++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, len);
    (void)written; // nowhere is left to report it
}
