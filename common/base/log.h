// log.h: one line an event: time, level, process, area, then words of an event with its fields.
//
// error = lost something, warn = recovered, info = a handful of lines per life-cycle event, debug
// grows with objects, trace with events. Any thread; a line is one write of at most
// LOG_LINE_BYTES_MAX bytes, so that lines of processes that share a pipe do not mix. Text from
// outside is escaped: it can neither forge a line nor drive a terminal. No prompt text, ever,
// unless a flag asks for it.
#ifndef MOESAIC_COMMON_BASE_LOG_H
#define MOESAIC_COMMON_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// LOG_SILENT is for tests that provoke errors.
enum log_level { LOG_SILENT = -1, LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_TRACE };
enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

// The process's name in each line ("leader", "worker") and the least important level that is still
// written. Call both before the second thread starts.
void log_setup(const char *process, enum log_level level);
void log_set_format(enum log_format format);
void log_set_level(enum log_level level);
bool log_level_parse(const char *name, enum log_level *out);
bool log_format_parse(const char *name, enum log_format *out); // "text", "json"
bool log_enabled(enum log_level level);

// --- an event with fields: what life-cycle lines are written with
//
//   log_event(LOG_INFO, "members", "worker lost", log_uint("rank", 1), log_text("reason", text));
//
// writes `worker lost rank 1 reason "it left"`, or in JSON "message" and "fields". The words of an
// event and its keys are fixed: docs/operations.md lists them.

struct log_field {
    const char *key;
    enum { LOG_FIELD_TEXT, LOG_FIELD_UINT, LOG_FIELD_REAL } kind;
    const char *text; // may be any bytes; NULL is ""
    uint64_t number;
    double real;
};

static inline struct log_field log_text(const char *key, const char *text) {
    return (struct log_field){.key = key, .kind = LOG_FIELD_TEXT, .text = text};
}
static inline struct log_field log_uint(const char *key, uint64_t number) {
    return (struct log_field){.key = key, .kind = LOG_FIELD_UINT, .number = number};
}
// Three decimals.
static inline struct log_field log_real(const char *key, double real) {
    return (struct log_field){.key = key, .kind = LOG_FIELD_REAL, .real = real};
}

// area is the module ("sched", "members").
void log_fields(enum log_level level, const char *area, const char *event,
                const struct log_field *fields, size_t n_fields);
#define LOG_FIELDS(...)                                                                            \
    (const struct log_field[]){__VA_ARGS__},                                                       \
        sizeof((const struct log_field[]){__VA_ARGS__}) / sizeof(struct log_field)
#define log_event(level, area, event, ...)                                                         \
    (log_enabled(level) ? log_fields(level, area, event, LOG_FIELDS(__VA_ARGS__)) : (void)0)

// --- a sentence

void log_write(enum log_level level, const char *area, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define log_error(area, ...) log_write(LOG_ERROR, area, __VA_ARGS__)
#define log_warn(area, ...) log_write(LOG_WARN, area, __VA_ARGS__)
#define log_info(area, ...) log_write(LOG_INFO, area, __VA_ARGS__)
#define log_debug(area, ...)                                                                       \
    (log_enabled(LOG_DEBUG) ? log_write(LOG_DEBUG, area, __VA_ARGS__) : (void)0)
#define log_trace(area, ...)                                                                       \
    (log_enabled(LOG_TRACE) ? log_write(LOG_TRACE, area, __VA_ARGS__) : (void)0)

#endif
