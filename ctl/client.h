// client.h: HTTP to a leader, by libcurl: whole answers, and many token streams at once.
#ifndef MOESAIC_CTL_CLIENT_H
#define MOESAIC_CTL_CLIENT_H

#include "ctl/ctl.h"
#include "ctl/drawn.h"

// GETs a path. *body is NUL-terminated and the caller's to mem_free. A status other than 200 is an
// error that names it.
int client_get(struct ctl *c, const char *path, char **body, struct err_text *e);

// A leader is spoken to over HTTP and HTTPS alone: an error that names what --url is instead.
int client_check_url(const char *url, struct err_text *e);

// JSON can say nothing but UTF-8: an error that names what is something else.
int client_check_text(const char *what, const char *text, struct err_text *e);

// Fills c->model from --model or the first entry of /v1/models.
int client_find_model(struct ctl *c, struct err_text *e);

// How many ids the vocabulary of c->model has, as /v1/models says in meta.n_vocab. A server that
// does not say is an error.
int client_find_vocab(struct ctl *c, uint32_t *vocab, struct err_text *e);

// One streamed answer and its timing: of a chat, or of a prompt of drawn ids (drawn.h).
struct answer {
    const char *prompt;
    const struct drawn *drawn; // not NULL: the prompt's ids come from there, by `number`
    uint64_t number;
    uint32_t seed, max_tokens;
    void (*on_text)(const char *text); // may be NULL
    int64_t due_ns;                    // not asked before; 0: as soon as there is a place
    int64_t start_ns, first_ns, last_ns,
        end_ns;  // request, first and latest text, end of the answer
    long status; // of HTTP, 0: none came
    uint32_t prompt_tokens, completion_tokens;
    char finish_reason[32];
    char error[ERR_TEXT_MAX]; // empty when all went well
};

// Runs all answers, at most `concurrency` at once, in order (of due_ns, too).
int client_stream(struct ctl *c, struct answer *answers, uint32_t n, uint32_t concurrency,
                  struct err_text *e);

#endif
