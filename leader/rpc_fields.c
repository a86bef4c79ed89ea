// rpc_fields.c: see rpc_fields.h.
#include "leader/rpc_fields.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "common/base/limits.h"
#include "leader/rpc_fill.h"

static void add_bias(struct rpc_fill *f, json_t *all, const Moesaic__V1__TokenBias *one) {
    char key[16];
    snprintf(key, sizeof key, "%" PRIu32, one->token_id);
    if (!isfinite(one->bias))
        rpc_fill_refuse(f, "logit_bias", "a list of ids and numbers");
    else if (json_object_get(all, key) != NULL)
        rpc_fill_refuse(f, "logit_bias", "a list without the same id twice");
    else if (json_object_set_new(all, key, json_real((double)one->bias)) != 0)
        f->rc = api_error_set(f->error, 500, NULL, "memory is out.");
}

// One more than allowed is enough to be refused.
static void add_biases(struct rpc_fill *f, const Moesaic__V1__GenerateRequest *m) {
    if (m->n_logit_bias == 0 || f->rc != 0) return;
    json_t *all = json_object();
    for (size_t i = 0; i < m->n_logit_bias && i <= LOGIT_BIAS_MAX && f->rc == 0; i++)
        add_bias(f, all, m->logit_bias[i]);
    rpc_fill_value(f, "logit_bias", all);
}

static void add_sampling(struct rpc_fill *f, const Moesaic__V1__GenerateRequest *m) {
    if (m->optional_temperature_case) rpc_fill_number(f, "temperature", m->temperature);
    if (m->optional_top_p_case) rpc_fill_number(f, "top_p", m->top_p);
    if (m->optional_min_p_case) rpc_fill_number(f, "min_p", m->min_p);
    if (m->optional_top_k_case) rpc_fill_value(f, "top_k", json_integer(m->top_k));
    if (m->optional_repetition_penalty_case)
        rpc_fill_number(f, "repetition_penalty", m->repetition_penalty);
    rpc_fill_number(f, "presence_penalty", m->presence_penalty);
    rpc_fill_number(f, "frequency_penalty", m->frequency_penalty);
    add_biases(f, m);
    rpc_fill_ids(f, "allowed_token_ids",
                 (struct rpc_ids){m->n_allowed_token_ids, ALLOWED_IDS_MAX, m->allowed_token_ids});
    rpc_fill_strings(f, "bad_words",
                     (struct rpc_strings){m->n_bad_words, BAD_WORDS_MAX, m->bad_words});
}

static void add_length(struct rpc_fill *f, const Moesaic__V1__GenerateRequest *m) {
    bool wanted = m->echo || m->optional_prompt_logprobs_case;
    rpc_fill_integer(f, "max_tokens", m->max_tokens);
    if (!m->prompt_only || f->rc != 0) return;
    if (m->max_tokens != 0)
        f->rc = api_error_set(f->error, 400, "prompt_only",
                              "'prompt_only' generates nothing, and 'max_tokens' asks for %u.",
                              m->max_tokens);
    else if (!wanted)
        f->rc = api_error_set(f->error, 400, "prompt_only",
                              "'prompt_only' needs 'echo' or 'prompt_logprobs'.");
    else if (m->min_tokens != 0)
        f->rc = api_error_set(f->error, 400, "min_tokens",
                              "'prompt_only' generates nothing, and 'min_tokens' asks for %u.",
                              m->min_tokens);
    rpc_fill_value(f, "max_tokens", json_integer(0));
}

static void add_ends(struct rpc_fill *f, const Moesaic__V1__GenerateRequest *m) {
    add_length(f, m);
    rpc_fill_integer(f, "min_tokens", m->min_tokens);
    if (m->ignore_eos) rpc_fill_value(f, "ignore_eos", json_true());
    rpc_fill_strings(f, "stop", (struct rpc_strings){m->n_stop, STOP_STRINGS_MAX, m->stop});
    rpc_fill_ids(f, "stop_token_ids",
                 (struct rpc_ids){m->n_stop_token_ids, STOP_IDS_MAX, m->stop_token_ids});
}

static void add_shown(struct rpc_fill *f, const Moesaic__V1__GenerateRequest *m) {
    if (m->show_special_tokens) rpc_fill_value(f, "skip_special_tokens", json_false());
    if (m->include_stop_str_in_output) rpc_fill_value(f, "include_stop_str_in_output", json_true());
    if (m->echo) rpc_fill_value(f, "echo", json_true());
    if (m->optional_prompt_logprobs_case)
        rpc_fill_value(f, "prompt_logprobs", json_integer(m->prompt_logprobs));
}

int rpc_fields_fill(json_t *fields, const Moesaic__V1__GenerateRequest *m, struct api_error *e) {
    struct rpc_fill f = {.fields = fields, .error = e};
    rpc_fill_string(&f, "model", m->model);
    rpc_fill_integer(&f, "n", m->n);
    rpc_fill_string(&f, "cache_salt", m->cache_salt);
    if (m->priority != 0) rpc_fill_value(&f, "priority", json_integer(m->priority));
    add_sampling(&f, m);
    add_ends(&f, m);
    add_shown(&f, m);
    return f.rc;
}
