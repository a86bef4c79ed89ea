// http_answer.h: a generation's answer over HTTP: JSON at once, or chunks as server-sent events.
//
// Between generation.c and http.c on the way back.
#ifndef MOESAIC_LEADER_HTTP_ANSWER_H
#define MOESAIC_LEADER_HTTP_ANSWER_H

#include "leader/client.h"
#include "leader/http.h"

// The call as the client of a generation, for render_take.
struct client http_answer_client(struct http_call *call, bool chat);

// Any thread: the call's one answer is an error.
void http_answer_error(struct http_call *call, const struct api_error *e);

#endif
