// status.h: what a person, a probe or Prometheus asks about the leader, as pages of text. Nothing
// here waits for the scheduler: it reads copies and counters.
#ifndef MOESAIC_LEADER_STATUS_H
#define MOESAIC_LEADER_STATUS_H

#include "leader/http.h"
#include "leader/serving.h"

// /metrics. http may be NULL (tests).
void status_metrics(struct buf *page, struct serving *s, struct http *http);
// One model object, or the list that holds it.
void status_model(struct buf *page, const struct serving *s, bool list);
// /ready: true when the group serves; the page says what is awaited otherwise.
bool status_ready(struct buf *page, struct serving *s);
// /status: the whole as one JSON object.
void status_json(struct buf *page, struct serving *s);

// The names that pages use for enum values.
const char *status_worker_state(enum member_state state);
const char *status_finish_name(enum finish finish);
const char *status_rejection_name(enum rejection rejection);
void status_version(struct buf *page, const struct serving *s);

#endif
