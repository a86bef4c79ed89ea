// openai_fields.c: one table row a field: where it is allowed, how it is read, its range. null
// means "not given" everywhere.
#include "leader/openai_fields.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "common/base/check.h"
#include "leader/client.h"

// Below this, probabilities are beyond float32 and only the largest logit is left.
#define TEMPERATURE_MIN 1e-5
// top_p 0 keeps one token, like the smallest positive number.
#define TOP_P_MIN 1e-30
// Doubles up to 2^53 hold every integer.
#define WHOLE_MAX 9007199254740992.0
// Above 0: it divides. Below this nothing but repeats would be left, or infinities.
#define REPETITION_MIN 0.01

static void *place(struct openai_reader *r, const struct openai_field *f) {
    return (char *)r->request + f->offset;
}

int openai_field_wrong(struct openai_reader *r, const struct openai_field *f, const char *must) {
    return api_error_set(r->error, 400, f->name, "'%s' must be %s.", f->name, must);
}

int openai_field_range(struct openai_reader *r, const struct openai_field *f) {
    return api_error_set(r->error, 400, f->name, "'%s' must be between %.15g and %.15g.", f->name,
                         f->min, f->max);
}

// --- plain readers

static int read_bool(struct openai_reader *r, const struct openai_field *f, const json_t *value) {
    if (!json_is_boolean(value)) return openai_field_wrong(r, f, "a boolean");
    *(bool *)place(r, f) = json_is_true(value);
    return 0;
}

static int read_number(struct openai_reader *r, const struct openai_field *f, const json_t *value) {
    if (!json_is_number(value)) return openai_field_wrong(r, f, "a number");
    double x = json_number_value(value);
    if (!(x >= f->min && x <= f->max)) return openai_field_range(r, f);
    *(float *)place(r, f) = (float)x + 0.0f; // no negative zero
    return 0;
}

// JSON has one kind of number, and some clients write 1 as 1.0: what is whole and exact is an
// integer.
static bool whole(const json_t *value, json_int_t *out) {
    double x = json_number_value(value);
    *out = json_integer_value(value);
    if (!json_is_real(value)) return json_is_integer(value);
    if (!(fabs(x) <= WHOLE_MAX) || x != trunc(x)) return false;
    *out = (json_int_t)x;
    return true;
}

static int read_integer(struct openai_reader *r, const struct openai_field *f, const json_t *value,
                        uint32_t *out) {
    json_int_t x;
    if (!whole(value, &x)) return openai_field_wrong(r, f, "an integer");
    if ((double)x < f->min || (double)x > f->max) return openai_field_range(r, f);
    *out = (uint32_t)x;
    return 0;
}

int openai_read_uint(struct openai_reader *r, const struct openai_field *f, const json_t *value) {
    return read_integer(r, f, value, place(r, f));
}

// --- fields with rules of their own

static int read_model(struct openai_reader *r, const struct openai_field *f, const json_t *value) {
    if (!json_is_string(value)) return openai_field_wrong(r, f, "a string");
    r->request->model = json_string_value(value);
    return 0;
}

static int read_temperature(struct openai_reader *r, const struct openai_field *f,
                            const json_t *value) {
    int rc = read_number(r, f, value);
    float *t = place(r, f);
    if (rc == 0 && *t < (float)TEMPERATURE_MIN) *t = 0;
    return rc;
}

static int read_top_p(struct openai_reader *r, const struct openai_field *f, const json_t *value) {
    int rc = read_number(r, f, value);
    float *p = place(r, f);
    if (rc == 0 && *p < (float)TOP_P_MIN) *p = (float)TOP_P_MIN;
    return rc;
}

// -1 is another way to write "off".
static int read_top_k(struct openai_reader *r, const struct openai_field *f, const json_t *value) {
    if (json_number_value(value) == -1) {
        r->request->sampling.top_k = 0;
        return 0;
    }
    return openai_read_uint(r, f, value);
}

static int read_seed(struct openai_reader *r, const struct openai_field *f, const json_t *value) {
    json_int_t seed;
    if (!whole(value, &seed)) return openai_field_wrong(r, f, "an integer");
    r->request->has_seed = true;
    r->request->seed = seed;
    return 0;
}

static int read_max_completion_tokens(struct openai_reader *r, const struct openai_field *f,
                                      const json_t *value) {
    return read_integer(r, f, value, &r->max_completion_tokens);
}

// Completions: how many alternatives; 0 still asks for the sampled token's own.
static int read_logprobs_count(struct openai_reader *r, const struct openai_field *f,
                               const json_t *value) {
    r->request->sampling.want_logprob = true;
    return read_integer(r, f, value, &r->request->sampling.n_logprobs);
}

static int read_top_logprobs(struct openai_reader *r, const struct openai_field *f,
                             const json_t *value) {
    r->has_top_logprobs = true;
    return read_integer(r, f, value, &r->request->sampling.n_logprobs);
}

static int add_stop(struct openai_reader *r, const struct openai_field *f, const json_t *value) {
    struct stop_strings *stop = &r->request->stop;
    if (!json_is_string(value)) return openai_field_wrong(r, f, "a string or a list of strings");
    size_t bytes = json_string_length(value);
    if (bytes == 0 || bytes > STOP_STRING_BYTES_MAX)
        return api_error_set(r->error, 400, f->name,
                             "each string of 'stop' must have 1 to %d bytes.",
                             STOP_STRING_BYTES_MAX);
    if (stop->n == STOP_STRINGS_MAX)
        return api_error_set(r->error, 400, f->name, "'stop' may have at most %d strings.",
                             STOP_STRINGS_MAX);
    stop->text[stop->n] = json_string_value(value);
    stop->bytes[stop->n++] = bytes;
    return 0;
}

static int read_stop(struct openai_reader *r, const struct openai_field *f, const json_t *value) {
    if (!json_is_array(value)) return add_stop(r, f, value);
    int rc = 0;
    for (size_t i = 0; i < json_array_size(value) && rc == 0; i++)
        rc = add_stop(r, f, json_array_get(value, i));
    return rc;
}

static int read_stop_ids(struct openai_reader *r, const struct openai_field *f,
                         const json_t *value) {
    struct openai_request *q = r->request;
    if (!json_is_array(value)) return openai_field_wrong(r, f, "a list of token ids");
    if ((double)json_array_size(value) > f->max)
        return api_error_set(r->error, 400, f->name, "'%s' may have at most %.0f ids.", f->name,
                             f->max);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *id = json_array_get(value, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= r->defaults->vocab)
            return openai_field_wrong(r, f, "a list of token ids of this model");
        q->stop_ids[q->n_stop_ids++] = (uint32_t)json_integer_value(id);
    }
    return 0;
}

static int read_stream_options(struct openai_reader *r, const struct openai_field *f,
                               const json_t *value) {
    if (!json_is_object(value)) return openai_field_wrong(r, f, "an object");
    r->has_stream_options = true;
    const json_t *usage = json_object_get(value, "include_usage");
    const json_t *each = json_object_get(value, "continuous_usage_stats");
    if (usage != NULL && !json_is_boolean(usage) && !json_is_null(usage))
        return api_error_set(r->error, 400, "stream_options.include_usage",
                             "'stream_options.include_usage' must be a boolean.");
    if (each != NULL && !json_is_boolean(each) && !json_is_null(each))
        return api_error_set(r->error, 400, "stream_options.continuous_usage_stats",
                             "'stream_options.continuous_usage_stats' must be a boolean.");
    r->request->include_usage = json_is_true(usage);
    r->request->continuous_usage = json_is_true(usage) && json_is_true(each);
    return 0;
}

// -1: as many as fit. What is above the context is refused where that is known.
static int read_truncate(struct openai_reader *r, const struct openai_field *f,
                         const json_t *value) {
    json_int_t x;
    if (!whole(value, &x)) return openai_field_wrong(r, f, "an integer");
    if (x != -1 && (x < 1 || x > INT32_MAX))
        return openai_field_wrong(r, f, "-1, or between 1 and the model's context length");
    r->request->truncate_prompt = x == -1 ? TRUNCATE_TO_FIT : (uint32_t)x;
    return 0;
}

static int read_request_id(struct openai_reader *r, const struct openai_field *f,
                           const json_t *value) {
    const char *id = json_string_value(value);
    if (id == NULL || !client_id_ok(id))
        return openai_field_wrong(r, f, "1 to 128 printable ASCII characters without spaces");
    r->request->request_id = id;
    return 0;
}

static int read_cache_salt(struct openai_reader *r, const struct openai_field *f,
                           const json_t *value) {
    if (json_string_length(value) == 0) return openai_field_wrong(r, f, "a string, not empty");
    r->request->cache_salt = json_string_value(value);
    return 0;
}

static bool is_named(const json_t *value, const char *const *names) {
    const char *text = json_string_value(value);
    for (; text != NULL && *names != NULL; names++) {
        if (strcmp(text, *names) == 0) return true;
    }
    return false;
}

static int unsupported(struct openai_reader *r, const struct openai_field *f) {
    return api_error_code(r->error,
                          api_error_set(r->error, 400, f->name,
                                        "'%s' with this value is not supported by this server.",
                                        f->name),
                          "unsupported_parameter");
}

static int read_response_format(struct openai_reader *r, const struct openai_field *f,
                                const json_t *value) {
    static const char *const text[] = {"text", NULL};
    return is_named(json_object_get(value, "type"), text) ? 0 : unsupported(r, f);
}

static int read_modalities(struct openai_reader *r, const struct openai_field *f,
                           const json_t *value) {
    static const char *const text[] = {"text", NULL};
    bool ok = json_array_size(value) == 1 && is_named(json_array_get(value, 0), text);
    return ok ? 0 : unsupported(r, f);
}

// A template writes the model's first tokens itself.
static int read_add_special(struct openai_reader *r, const struct openai_field *f,
                            const json_t *value) {
    int rc = read_bool(r, f, value);
    return rc == 0 && r->request->chat && r->request->add_special_tokens ? unsupported(r, f) : rc;
}

static bool is_neutral(const json_t *value, enum neutral neutral) {
    switch (neutral) {
    case NEUTRAL_NONE: return false;
    case NEUTRAL_FALSE: return json_is_false(value);
    case NEUTRAL_ZERO: return json_is_number(value) && json_number_value(value) == 0;
    case NEUTRAL_ONE: return json_is_number(value) && json_number_value(value) == 1;
    case NEUTRAL_EMPTY:
        return (json_is_array(value) && json_array_size(value) == 0) ||
               (json_is_object(value) && json_object_size(value) == 0) ||
               (json_is_string(value) && json_string_length(value) == 0);
    }
    return false;
}

static int refuse(struct openai_reader *r, const struct openai_field *f, const json_t *value) {
    return is_neutral(value, f->neutral) ? 0 : unsupported(r, f);
}

#define REFUSED(name, where, neutral)                                                              \
    { name, where, refuse, 0, 0, 0, neutral }

static const struct openai_field fields[] = {
    {"model", ANY, read_model, 0, 0, 0, 0},
    {"stream", BOTH, read_bool, AT(stream), 0, 0, 0},
    {"stream_options", BOTH, read_stream_options, 0, 0, 0, 0},
    {"temperature", BOTH, read_temperature, AT(sampling.temperature), 0, 2, 0},
    {"top_p", BOTH, read_top_p, AT(sampling.top_p), 0, 1, 0},
    {"top_k", BOTH, read_top_k, AT(sampling.top_k), 0, INT32_MAX, 0},
    {"min_p", BOTH, read_number, AT(sampling.min_p), 0, 1, 0},
    {"presence_penalty", BOTH, read_number, AT(steering.presence_penalty), -2, 2, 0},
    {"frequency_penalty", BOTH, read_number, AT(steering.frequency_penalty), -2, 2, 0},
    {"repetition_penalty", BOTH, read_number, AT(steering.repetition_penalty), REPETITION_MIN, 10,
     0},
    {"logit_bias", BOTH, openai_read_logit_bias, 0, -100, 100, 0},
    {"allowed_token_ids", BOTH, openai_read_allowed_ids, 0, 0, 0, 0},
    {"bad_words", BOTH, openai_read_bad_words, 0, 0, 0, 0},
    {"min_tokens", BOTH, openai_read_uint, AT(steering.min_tokens), 0, INT32_MAX, 0},
    {"seed", BOTH, read_seed, 0, 0, 0, 0},
    {"n", BOTH, openai_read_uint, AT(n), 1, CHOICES_MAX, 0},
    {"max_tokens", BOTH, openai_read_max_tokens, AT(max_tokens), 0, INT32_MAX, 0},
    {"max_completion_tokens", CHAT, read_max_completion_tokens, 0, 1, INT32_MAX, 0},
    {"stop", BOTH, read_stop, 0, 0, 0, 0},
    // Room is left for the model's own stop ids.
    {"stop_token_ids", BOTH, read_stop_ids, 0, 0, STOP_IDS_MAX / 2, 0},
    {"logprobs", CHAT, read_bool, AT(sampling.want_logprob), 0, 0, 0},
    {"top_logprobs", CHAT, read_top_logprobs, 0, 0, TOP_LOGPROBS_MAX, 0},
    {"logprobs", COMPLETION, read_logprobs_count, 0, 0, TOP_LOGPROBS_MAX, 0},
    {"ignore_eos", BOTH, read_bool, AT(ignore_eos), 0, 0, 0},
    {"skip_special_tokens", BOTH, read_bool, AT(skip_special_tokens), 0, 0, 0},
    {"add_generation_prompt", MESSAGES, read_bool, AT(add_generation_prompt), 0, 0, 0},
    {"return_token_ids", BOTH, read_bool, AT(return_token_ids), 0, 0, 0},
    {"include_stop_str_in_output", BOTH, read_bool, AT(stop.keep), 0, 0, 0},
    {"truncate_prompt_tokens", BOTH | TOKENIZE, read_truncate, 0, 0, 0, 0},
    {"continue_final_message", MESSAGES, read_bool, AT(continue_final_message), 0, 0, 0},
    {"chat_template_kwargs", MESSAGES, openai_read_template_kwargs, 0, 0, 0, 0},
    {"echo", COMPLETION, read_bool, AT(echo), 0, 0, 0},
    {"prompt_logprobs", BOTH, openai_read_prompt_logprobs, AT(n_prompt_logprobs), 0,
     TOP_LOGPROBS_MAX, 0},
    {"request_id", BOTH, read_request_id, 0, 0, 0, 0},
    {"cache_salt", BOTH, read_cache_salt, 0, 0, 0, 0},
    REFUSED("priority", BOTH, NEUTRAL_ZERO), // requests run in the order in which they came
    {"return_token_strs", TOKENIZE, read_bool, AT(return_token_strs), 0, 0, 0},
    {"add_special_tokens", BOTH | TOKENIZE, read_add_special, AT(add_special_tokens), 0, 0, 0},

    {"response_format", BOTH, read_response_format, 0, 0, 0, 0},
    {"tools", MESSAGES, openai_read_tools, 0, 0, 0, 0},
    {"tool_choice", CHAT, openai_read_tool_choice, 0, 0, 0, 0},
    {"parallel_tool_calls", CHAT, read_bool, AT(parallel_tool_calls), 0, 0, 0},
    {"documents", MESSAGES, openai_read_documents, 0, 0, 0, 0},
    {"modalities", CHAT, read_modalities, 0, 0, 0, 0},
    REFUSED("length_penalty", BOTH, NEUTRAL_ONE),
    REFUSED("best_of", BOTH, NEUTRAL_ONE),
    REFUSED("use_beam_search", BOTH, NEUTRAL_FALSE),
    REFUSED("suffix", COMPLETION, NEUTRAL_EMPTY),
    REFUSED("echo", CHAT, NEUTRAL_FALSE),
    REFUSED("functions", CHAT, NEUTRAL_EMPTY),
    REFUSED("function_call", CHAT, NEUTRAL_NONE),
    REFUSED("audio", CHAT, NEUTRAL_NONE),
    REFUSED("web_search_options", CHAT, NEUTRAL_NONE),
    REFUSED("verbosity", CHAT, NEUTRAL_NONE),
    REFUSED("reasoning_effort", CHAT, NEUTRAL_NONE),
    REFUSED("thinking_token_budget", BOTH, NEUTRAL_NONE),
    REFUSED("logits_processors", BOTH, NEUTRAL_EMPTY),
    REFUSED("structured_outputs", BOTH, NEUTRAL_NONE),
    REFUSED("structural_tag", BOTH, NEUTRAL_NONE),
    REFUSED("guided_json", BOTH, NEUTRAL_NONE),
    REFUSED("guided_regex", BOTH, NEUTRAL_NONE),
    REFUSED("guided_choice", BOTH, NEUTRAL_NONE),
    REFUSED("guided_grammar", BOTH, NEUTRAL_NONE),
    REFUSED("grammar", BOTH, NEUTRAL_NONE),
    REFUSED("json_schema", BOTH, NEUTRAL_NONE),
    REFUSED("chat_template", MESSAGES, NEUTRAL_NONE),
    REFUSED("prompt_embeds", COMPLETION, NEUTRAL_NONE),
    REFUSED("mm_processor_kwargs", MESSAGES, NEUTRAL_EMPTY),
    REFUSED("kv_transfer_params", BOTH, NEUTRAL_NONE),
};

int openai_fields_read(struct openai_reader *r, const json_t *root) {
    int here = r->where != 0 ? r->where : r->request->chat ? CHAT : COMPLETION;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const struct openai_field *f = &fields[i];
        const json_t *value = json_object_get(root, f->name);
        if ((f->where & here) == 0 || value == NULL || json_is_null(value)) continue;
        int rc = f->read(r, f, value);
        if (rc != 0) return rc;
    }
    return 0;
}

int openai_fields_check(struct openai_reader *r) {
    struct openai_request *q = r->request;
    if (r->max_completion_tokens != 0) {
        q->max_tokens = r->max_completion_tokens;
        q->max_tokens_field = "max_completion_tokens";
    }
    if (r->has_top_logprobs && !q->sampling.want_logprob)
        return api_error_set(r->error, 400, "top_logprobs",
                             "'top_logprobs' needs 'logprobs' to be true.");
    if (q->max_tokens != 0 && q->steering.min_tokens > q->max_tokens)
        return api_error_set(r->error, 400, "min_tokens", "'min_tokens' must be at most '%s' (%u).",
                             q->max_tokens_field, q->max_tokens);
    if (q->continue_final_message && q->add_generation_prompt)
        return api_error_set(r->error, 400, "continue_final_message",
                             "'continue_final_message' needs 'add_generation_prompt' to be false.");
    if (r->has_stream_options && !q->stream)
        return api_error_set(r->error, 400, "stream_options",
                             "'stream_options' is only allowed with 'stream': true.");
    int rc = openai_scores_check(r);
    return rc == 0 ? openai_tools_check(r) : rc;
}
