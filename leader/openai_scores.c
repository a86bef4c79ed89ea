// openai_scores.c: the fields that ask how likely a prompt was: prompt_logprobs, echo with
// logprobs, and max_tokens 0, which asks for nothing else.
#include "leader/openai_fields.h"

// 0: only the prompt is read.
int openai_read_max_tokens(struct openai_reader *r, const struct openai_field *f,
                           const json_t *value) {
    struct openai_request *q = r->request;
    int rc = openai_read_uint(r, f, value);
    q->prompt_only = rc == 0 && q->max_tokens == 0;
    return rc;
}

// 0 still asks for the prompt's own tokens.
int openai_read_prompt_logprobs(struct openai_reader *r, const struct openai_field *f,
                                const json_t *value) {
    r->request->prompt_logprobs = true;
    return openai_read_uint(r, f, value);
}

static int check_prompt_only(struct openai_reader *r) {
    struct openai_request *q = r->request;
    if (!q->echo && !q->prompt_logprobs)
        return api_error_set(r->error, 400, "max_tokens",
                             "'max_tokens' must be between 1 and %d, or 0 with 'echo' or "
                             "'prompt_logprobs'.",
                             INT32_MAX);
    if (q->steering.min_tokens > 0)
        return api_error_set(r->error, 400, "min_tokens",
                             "'min_tokens' must be at most 'max_tokens' (0).");
    return 0;
}

int openai_scores_check(struct openai_reader *r) {
    struct openai_request *q = r->request;
    q->prompt_only = q->prompt_only && q->max_tokens == 0; // max_completion_tokens wins
    if (q->prompt_only && check_prompt_only(r) != 0) return ERR_REQ_INVALID;
    q->echo_logprobs = q->echo && q->sampling.want_logprob;
    return 0;
}

uint32_t openai_score_top(const struct openai_request *r) {
    uint32_t n = r->prompt_logprobs ? r->n_prompt_logprobs : 0;
    return r->echo_logprobs && r->sampling.n_logprobs > n ? r->sampling.n_logprobs : n;
}
