// fuzz_openai.c: bodies of the endpoints. The first byte chooses the endpoint. What is accepted
// must keep the promises that render.c builds on.
#include <stdint.h>

#include "common/base/check.h"
#include "leader/client.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_prompts(const struct openai_request *r) {
    check(r->n_prompts >= 1 && r->n_prompts <= PROMPTS_MAX);
    for (uint32_t i = 0; i < r->n_prompts && !r->chat; i++) {
        const struct openai_prompt *p = &r->prompts[i];
        check(p->text == NULL || p->ids == NULL);
        check(p->ids != NULL || p->n_ids == 0);
        for (uint32_t k = 0; k < p->n_ids; k++)
            check(p->ids[k] < 100);
    }
}

static void check_request(const struct openai_request *r) {
    const struct sampling *s = &r->sampling;
    check(s->temperature >= 0 && s->temperature <= 2);
    check(s->top_p > 0 && s->top_p <= 1 && s->min_p >= 0 && s->min_p <= 1);
    check(s->top_k <= INT32_MAX && s->n_logprobs <= TOP_LOGPROBS_MAX);
    check(s->want_logprob || s->n_logprobs == 0);
    check(r->n >= 1 && r->n <= CHOICES_MAX && r->max_tokens <= INT32_MAX);
    check(r->stop.n <= STOP_STRINGS_MAX && r->n_stop_ids <= STOP_IDS_MAX);
    for (uint32_t i = 0; i < r->stop.n; i++)
        check(r->stop.bytes[i] >= 1 && r->stop.bytes[i] <= STOP_STRING_BYTES_MAX);
    check(r->request_id == NULL || client_id_ok(r->request_id));
    check(!r->continue_final_message || !r->add_generation_prompt);
    check(!r->echo || (!r->chat && !s->want_logprob));
    check_prompts(r);
}

typedef int parser(struct openai_request *, const struct openai_body *,
                   const struct openai_defaults *, struct api_error *);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static parser *const parsers[] = {openai_parse, openai_parse, openai_parse_tokenize,
                                      openai_parse_detokenize};
    static const struct openai_defaults defaults = {.temperature = 1, .top_p = 1, .vocab = 100};
    struct openai_request r;
    struct api_error e;
    if (size == 0) return 0;
    struct openai_body body = {
        .chat = data[0] % 2 == 0, .text = (const char *)data + 1, .bytes = size - 1};
    int rc = parsers[data[0] % 4](&r, &body, &defaults, &e);
    if (rc != 0) {
        struct buf text;
        buf_init(&text, 0);
        check(e.status == 400 || e.status == 500);
        answer_error(&text, &e);
        buf_finish(&text);
        return 0;
    }
    check_request(&r);
    openai_request_finish(&r);
    return 0;
}
