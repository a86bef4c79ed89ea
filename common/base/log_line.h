// log_line.h: one log line as bytes: a pure function, so that tests can feed it anything.
#ifndef MOESAIC_COMMON_BASE_LOG_LINE_H
#define MOESAIC_COMMON_BASE_LOG_LINE_H

#include "common/base/log.h"

// The bytes that a pipe takes as a whole (PIPE_BUF on Linux).
#define LOG_LINE_BYTES_MAX 4096

struct log_record {
    enum log_format format;
    int64_t wall_ns; // since 1970, not negative
    const char *level, *process, *area, *message;
    const struct log_field *fields; // [n_fields]
    size_t n_fields;
};

// Writes the line with its newline and returns its bytes. Always valid UTF-8 with one newline, at
// the end; in JSON always one valid object. What does not fit is cut and marked with "...".
size_t log_line(char out[LOG_LINE_BYTES_MAX], const struct log_record *r);

#endif
