// request_log.h: lines of the log about requests: ids, counts and times, and text only where a flag
// asked for it. Called by the threads of render and stream.
#ifndef MOESAIC_LEADER_REQUEST_LOG_H
#define MOESAIC_LEADER_REQUEST_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/log.h"

struct api_error;
struct client;
struct generation;
struct request;
struct serving;

struct request_log {
    enum log_level requests; // level of these lines
    bool prompts;            // they may show text
    uint32_t bytes_max;      // of it
};

void request_log_admitted(const struct generation *g, struct request *const *list);
void request_log_refused(const struct serving *s, const struct client *client,
                         const struct api_error *e);
// The last choice has ended.
void request_log_ended(const struct generation *g);

#endif
