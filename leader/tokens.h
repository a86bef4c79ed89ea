// tokens.h: /tokenize and /detokenize: what a prompt's ids are, and what ids say.
//
// Beside a request's walk: parses with openai.c, encodes with prompt.c on the render pool, asks no
// worker.
#ifndef MOESAIC_LEADER_TOKENS_H
#define MOESAIC_LEADER_TOKENS_H

#include "leader/http.h"
#include "leader/render.h"

enum tokens_kind { TOKENS_ENCODE, TOKENS_DECODE };

// HTTP thread: the call is answered, now or by the render pool.
void tokens_take(struct render *r, struct http_call *call, enum tokens_kind kind);

#endif
