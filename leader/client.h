// client.h: who asked for a generation and hears its answer, as a function table: an HTTP call
// (http_answer.c) or a gRPC call (rpc_answer.c). What is behind it (render, stream, generation)
// knows no more of its client than this.
#ifndef MOESAIC_LEADER_CLIENT_H
#define MOESAIC_LEADER_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/env.h"
#include "leader/answer.h"
#include "leader/openai.h"

struct choice;
struct generation;

#define REQUEST_ID_BYTES_MAX 128

// What a client calls its request: 1 to REQUEST_ID_BYTES_MAX printable characters without spaces.
bool client_id_ok(const char *id);
void client_id_draw(char id[REQUEST_ID_BYTES_MAX + 1], struct env *env);

struct prompt_start {
    uint32_t first_token;
    uint64_t text_chars, ids_chars;
    const struct buf *drifts; // of struct text_drift: where the two differ, beside first tokens
};

struct client_ops {
    void (*hold)(void *self);
    void (*release)(void *self);
    const char *(*request_id)(const void *self); // final once parse returned
    int64_t (*arrived_ns)(const void *self);
    int32_t (*key)(const void *self);  // the number of its API key, or KEY_NONE
    size_t (*bytes)(const void *self); // of the message, before it is parsed
    // Render thread, once: the call's message to a checked request. The message is dropped. As
    // openai_parse.
    int (*parse)(void *self, struct openai_request *out, const struct openai_defaults *defaults,
                 struct api_error *e);
    // Both as http_call_gone and http_call_on_gone.
    bool (*gone)(void *self);
    bool (*on_gone)(void *self, void (*gone)(void *context), void *context);
    // Any thread: gone, or asked to end while its client goes on listening.
    bool (*unwanted)(void *self);
    // Stream thread: a token came whose log-probabilities were asked for; it added text_chars
    // characters. Without has_token it is the stop id.
    void (*note_logprobs)(struct choice *c, const struct token_event *ev, uint64_t text_chars);
    // A choice whose prompt is scored. Render thread, once: its first token, which has no score,
    // and how many of all its ids' characters the client gets (with echo). False: memory is out.
    bool (*begin_scores)(struct choice *c, const struct prompt_start *start);
    // Stream thread: the next of its tokens.
    void (*note_scores)(struct choice *c, const struct prompt_scores *scores);
    // Render thread: the answer will hold about that many bytes of its prompts' scores at once.
    // False: too many are held already.
    bool (*hold_bytes)(void *self, uint64_t bytes);
    // Stream thread: says what is new of one choice, and the end when all have finished.
    void (*show)(struct generation *g, struct choice *c);
    // An error in place of the answer, or of its rest when it has begun. Ends the call.
    void (*fail)(void *self, bool begun, const struct api_error *e);
};

struct client {
    const struct client_ops *ops;
    void *self;
};

#endif
