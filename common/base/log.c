// log.c: see log.h. Formats a line in one buffer (log_line.c) and writes it with one call.
#include "common/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log_line.h"

#define MESSAGE_BYTES_MAX 2048

// The log is the one module that may keep file-scope state: it is needed before and after
// everything else.
static _Atomic int current_level = LOG_INFO;
static _Atomic int current_format = LOG_FORMAT_TEXT;
static char process_name[64] = "moesaic";

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

void log_setup(const char *process, enum log_level level) {
    snprintf(process_name, sizeof process_name, "%s", process);
    atomic_store(&current_level, (int)level);
}

void log_set_format(enum log_format format) {
    atomic_store(&current_format, (int)format);
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

bool log_format_parse(const char *name, enum log_format *out) {
    bool json = strcmp(name, "json") == 0;
    if (!json && strcmp(name, "text") != 0) return false;
    *out = json ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT;
    return true;
}

bool log_enabled(enum log_level level) {
    return (int)level <= atomic_load_explicit(&current_level, memory_order_relaxed);
}

static int64_t wall_clock_ns(void) {
    struct timespec ts = {0};
    clock_gettime(CLOCK_REALTIME, &ts);
    return ts.tv_sec < 0 ? 0 : (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

// A file or terminal may take a line in parts; a pipe takes it whole.
static void write_all(const char *data, size_t bytes) {
    while (bytes > 0) {
        ssize_t n = write(STDERR_FILENO, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return; // nowhere is left to report it
        data += n;
        bytes -= (size_t)n;
    }
}

void log_fields(enum log_level level, const char *area, const char *event,
                const struct log_field *fields, size_t n_fields) {
    if (!log_enabled(level)) return;
    char line[LOG_LINE_BYTES_MAX];
    struct log_record record = {.format = (enum log_format)atomic_load(&current_format),
                                .wall_ns = wall_clock_ns(),
                                .level = level_names[level],
                                .process = process_name,
                                .area = area,
                                .message = event,
                                .fields = fields,
                                .n_fields = n_fields};
    write_all(line, log_line(line, &record));
}

void log_write(enum log_level level, const char *area, const char *format, ...) {
    char message[MESSAGE_BYTES_MAX];
    va_list args;
    if (!log_enabled(level)) return;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    log_fields(level, area, message, NULL, 0);
}
