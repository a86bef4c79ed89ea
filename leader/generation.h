// generation.h: one API call in flight: its choices, what each has said so far, and what the client
// has heard.
//
// render.c makes it, the scheduler feeds it through stream_emit, the stream thread alone reads and
// ends it.
#ifndef MOESAIC_LEADER_GENERATION_H
#define MOESAIC_LEADER_GENERATION_H

#include "common/base/queue.h"
#include "leader/client.h"
#include "leader/echo.h"
#include "leader/openai.h"
#include "leader/serving.h"
#include "leader/stop.h"

struct stamped_event {
    struct token_event ev;
    int64_t at_ns;
};

// Tokens that wait for the stream thread. The last event has a place of its own: it cannot be lost.
struct inbox {
    struct stamped_event *events; // owned
    uint32_t n, capacity;
    bool has_last;
    struct stamped_event last;
};

struct choice {
    struct queue_link link; // in the stream thread's queue; first member
    struct generation *generation;
    uint32_t index, prompt_index;
    uint64_t request_id; // ascending by one within a generation
    uint32_t n_prompt;

    // Under the stream's lock; everything below is the stream thread's.
    struct inbox inbox;
    bool queued, lost; // lost: tokens could not be kept, the answer has a hole

    struct inbox taken;
    struct detok detok;
    struct stop stop;
    struct answer_logprobs logprobs;
    struct echo *echo; // owned; NULL: its prompt is not scored, or gRPC's client has it
    struct tool_reader calls;
    struct buf raw;   // text of the model that calls may still be read out of
    struct buf text;  // that may be shown and was not yet sent
    bool calls_ended; // the text is read to its end
    size_t n_calls_sent;
    struct buf ids; // uint32_t of the tokens not yet sent, when they are asked for
    uint32_t n_generated;
    uint32_t n_cached; // of its prompt's tokens: those that need not be computed
    bool has_stop_id;
    uint32_t stop_id; // that ended it
    uint64_t digest;
    enum finish finish; // as the client hears it; NONE while it goes on, and when it failed
    enum finish ended;  // how it went, also when it failed
    bool introduced, finish_sent, closed; // closed: the scheduler is done with it
    bool aborted_late;                    // because it went on when the generation was over
    struct choice_times times;
};

struct generation {
    struct serving *serving;
    struct stream *stream;
    struct client client; // held
    struct openai_request request;
    struct answer_head head;
    struct choice *choices;     // [n_choices], owned
    uint32_t n_choices, n_open; // open: the scheduler will still speak of it
    uint64_t scores_bytes;      // about what a whole answer has of its prompts' scores
    bool begun;                 // something of the answer was sent
    bool over;                  // the client has its whole answer, or an error, or is gone
};

// Takes over the request and holds the client. NULL when memory is out: the request is then
// finished as well.
struct generation *generation_create(struct serving *s, struct client client,
                                     struct openai_request *request);
void generation_destroy(struct generation *g);

// Asks the scheduler to end what is still open. Any thread that knows g is alive.
void generation_abort(struct generation *g);

bool generation_finished(const struct generation *g); // every choice has
struct answer_usage generation_usage(const struct generation *g);

// Stream thread: tells the client what is new of one choice; when all have finished, the end.
void generation_show(struct generation *g, struct choice *c);
// Stream thread: the client gets an error in place of (the rest of) the answer.
void generation_fail(struct generation *g, const struct api_error *e);

#endif
