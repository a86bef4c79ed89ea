// fuzz_generate.c: the bytes of a GenerateRequest. What is accepted must keep the promises that
// render.c builds on, and must have lost nothing.
#include <stdint.h>
#include <string.h>

#include "common/base/check.h"
#include "common/text/utf8.h"
#include "leader/rpc_request.h"

#define VOCAB 100

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_prompt(const struct openai_request *r, size_t size) {
    check(r->n_prompts == 1 && r->n >= 1 && r->n <= CHOICES_MAX);
    check((r->messages != NULL) == r->chat);
    if (r->chat) return;
    const struct openai_prompt *p = &r->prompts[0];
    check((p->text == NULL) != (p->ids == NULL));
    check(p->text == NULL || (p->text_bytes > 0 && p->text_bytes <= size));
    check(p->text == NULL || utf8_valid(p->text, p->text_bytes));
    check(p->text != NULL || p->n_ids > 0);
    for (uint32_t k = 0; k < p->n_ids; k++)
        check(p->ids[k] < VOCAB);
}

static void check_request(const struct openai_request *r, size_t size) {
    const struct sampling *s = &r->sampling;
    check(s->temperature >= 0 && s->temperature <= 2);
    check(s->top_p > 0 && s->top_p <= 1 && s->min_p >= 0 && s->min_p <= 1);
    check(s->top_k <= INT32_MAX && s->n_logprobs <= TOP_LOGPROBS_MAX);
    check(s->want_logprob || s->n_logprobs == 0);
    check(r->model == NULL || utf8_valid(r->model, strlen(r->model)));
    check(r->max_tokens <= INT32_MAX && r->max_tokens_default != 0);
    check(r->stop.n <= STOP_STRINGS_MAX && r->n_stop_ids <= STOP_IDS_MAX);
    for (uint32_t i = 0; i < r->stop.n; i++) {
        check(r->stop.bytes[i] >= 1 && r->stop.bytes[i] <= STOP_STRING_BYTES_MAX);
        check(utf8_valid(r->stop.text[i], r->stop.bytes[i]));
    }
    check(r->steering.n_bias <= LOGIT_BIAS_MAX && r->steering.n_allowed <= ALLOWED_IDS_MAX);
    for (uint32_t i = 0; i < r->steering.n_bias; i++)
        check(r->steering.bias_ids[i] < VOCAB && r->steering.bias[i] <= 100);
    for (uint32_t i = 0; i < r->steering.n_allowed; i++)
        check(r->steering.allowed_ids[i] < VOCAB);
    check(r->stream && r->return_token_ids && r->prompt_field != NULL);
    check_prompt(r, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct openai_defaults defaults = {.temperature = 1, .top_p = 1, .vocab = VOCAB};
    struct openai_request r;
    struct api_error e;
    struct rpc_message message = {.data = data, .bytes = size};
    char id[REQUEST_ID_BYTES_MAX + 1];
    if (rpc_request_parse(&r, id, &message, &defaults, &e) != 0) {
        check(e.status == 400 && e.message[0] != '\0');
        return 0;
    }
    check(id[0] == '\0' || client_id_ok(id));
    check_request(&r, size);
    openai_request_finish(&r);
    return 0;
}
