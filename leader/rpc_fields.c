// rpc_fields.c: see rpc_fields.h. Of a list, one more than allowed is enough to be refused.
#include "leader/rpc_fields.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/text/utf8.h"

struct filler {
    json_t *fields;
    struct api_error *error;
    int rc; // of the first that failed; nothing is added after it
};

static void no_memory(struct filler *f) {
    f->rc = api_error_set(f->error, 500, NULL, "memory is out.");
}

static void refuse(struct filler *f, const char *name, const char *must) {
    f->rc = api_error_set(f->error, 400, name, "'%s' must be %s.", name, must);
}

// Takes the value over; it is NULL when memory is out.
static void add(struct filler *f, const char *name, json_t *value) {
    if (f->rc != 0)
        json_decref(value);
    else if (json_object_set_new(f->fields, name, value) != 0)
        no_memory(f);
}

static void add_number(struct filler *f, const char *name, float x) {
    if (f->rc != 0) return;
    if (isfinite(x))
        add(f, name, json_real((double)x));
    else
        refuse(f, name, "a number");
}

static void add_integer(struct filler *f, const char *name, uint32_t x) {
    if (x != 0 && f->rc == 0) add(f, name, json_integer(x));
}

static void append(struct filler *f, json_t *list, json_t *value) {
    if (json_array_append_new(list, value) != 0) no_memory(f);
}

// --- lists

struct strings {
    size_t n, n_max;
    char **at;
};

static void add_strings(struct filler *f, const char *name, struct strings s) {
    if (s.n == 0 || f->rc != 0) return;
    json_t *list = json_array();
    for (size_t i = 0; i < s.n && i <= s.n_max && f->rc == 0; i++) {
        if (utf8_valid(s.at[i], strlen(s.at[i])))
            append(f, list, json_string(s.at[i]));
        else
            refuse(f, name, "UTF-8");
    }
    add(f, name, list);
}

struct ids {
    size_t n, n_max;
    const uint32_t *at;
};

static void add_ids(struct filler *f, const char *name, struct ids s) {
    if (s.n == 0 || f->rc != 0) return;
    json_t *list = json_array();
    for (size_t i = 0; i < s.n && i <= s.n_max && f->rc == 0; i++)
        append(f, list, json_integer(s.at[i]));
    add(f, name, list);
}

static void add_bias(struct filler *f, json_t *all, const Moesaic__V1__TokenBias *one) {
    char key[16];
    snprintf(key, sizeof key, "%" PRIu32, one->token_id);
    if (!isfinite(one->bias))
        refuse(f, "logit_bias", "a list of ids and numbers");
    else if (json_object_get(all, key) != NULL)
        refuse(f, "logit_bias", "a list without the same id twice");
    else if (json_object_set_new(all, key, json_real((double)one->bias)) != 0)
        no_memory(f);
}

static void add_biases(struct filler *f, const Moesaic__V1__GenerateRequest *m) {
    if (m->n_logit_bias == 0 || f->rc != 0) return;
    json_t *all = json_object();
    for (size_t i = 0; i < m->n_logit_bias && i <= LOGIT_BIAS_MAX && f->rc == 0; i++)
        add_bias(f, all, m->logit_bias[i]);
    add(f, "logit_bias", all);
}

// --- the request

static void add_sampling(struct filler *f, const Moesaic__V1__GenerateRequest *m) {
    if (m->optional_temperature_case) add_number(f, "temperature", m->temperature);
    if (m->optional_top_p_case) add_number(f, "top_p", m->top_p);
    if (m->optional_min_p_case) add_number(f, "min_p", m->min_p);
    if (m->optional_top_k_case) add(f, "top_k", json_integer(m->top_k));
    if (m->optional_repetition_penalty_case)
        add_number(f, "repetition_penalty", m->repetition_penalty);
    add_number(f, "presence_penalty", m->presence_penalty);
    add_number(f, "frequency_penalty", m->frequency_penalty);
    add_biases(f, m);
    add_ids(f, "allowed_token_ids",
            (struct ids){m->n_allowed_token_ids, ALLOWED_IDS_MAX, m->allowed_token_ids});
    add_strings(f, "bad_words", (struct strings){m->n_bad_words, BAD_WORDS_MAX, m->bad_words});
}

static void add_ends(struct filler *f, const Moesaic__V1__GenerateRequest *m) {
    add_integer(f, "max_tokens", m->max_tokens);
    add_integer(f, "min_tokens", m->min_tokens);
    if (m->ignore_eos) add(f, "ignore_eos", json_true());
    add_strings(f, "stop", (struct strings){m->n_stop, STOP_STRINGS_MAX, m->stop});
    add_ids(f, "stop_token_ids",
            (struct ids){m->n_stop_token_ids, STOP_IDS_MAX, m->stop_token_ids});
}

int rpc_fields_fill(json_t *fields, const Moesaic__V1__GenerateRequest *m, struct api_error *e) {
    struct filler f = {.fields = fields, .error = e};
    if (!utf8_valid(m->model, strlen(m->model))) refuse(&f, "model", "UTF-8");
    if (m->model[0] != '\0' && f.rc == 0) add(&f, "model", json_string(m->model));
    add_integer(&f, "n", m->n);
    if (m->show_special_tokens) add(&f, "skip_special_tokens", json_false());
    add_sampling(&f, m);
    add_ends(&f, m);
    return f.rc;
}
