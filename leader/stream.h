// stream.h: from the scheduler's tokens to the client's text: one thread that detokenises, looks
// for stop strings, and writes.
//
// Behind drive.c in a request's walk; the client (http_answer.c or rpc_answer.c) says it in its own
// way.
#ifndef MOESAIC_LEADER_STREAM_H
#define MOESAIC_LEADER_STREAM_H

#include "leader/generation.h"

struct stream;

int stream_create(struct stream **out, struct serving *s, struct err_text *e);
// Waits until every generation has ended; their last events must be on the way.
void stream_destroy(struct stream *s);

// struct request's emit; sink_context is the choice. Never blocks.
void stream_emit(const struct token_event *ev);

#endif
