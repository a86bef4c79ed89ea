// log.h: one line an event: time, level, area, text of lower-case `key value` pairs.
//
// error = lost something, warn = recovered, info = a handful of lines per life-cycle event, debug
// grows with objects, trace with events. Thread-safe; a line is one write. No prompt text at info.
#ifndef MOESAIC_COMMON_BASE_LOG_H
#define MOESAIC_COMMON_BASE_LOG_H

#include <stdbool.h>

// LOG_SILENT is for tests that provoke errors.
enum log_level { LOG_SILENT = -1, LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_TRACE };

// The process's name in each line ("leader", "worker 1") and the least important level that is
// still written.
void log_setup(const char *process, enum log_level level);
void log_set_level(enum log_level level);
bool log_level_parse(const char *name, enum log_level *out);
bool log_enabled(enum log_level level);

// area is the module ("sched", "members").
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
