// prompt.c: see prompt.h.
#include "leader/prompt.h"

#include <jansson.h>
#include <string.h>

#include "common/base/mem.h"
#include "leader/continuation.h"

static int fills_it(const struct serving *s, const struct openai_request *r, struct api_error *e) {
    int rc = api_error_set(e, 400, r->prompt_field,
                           "This model's maximum context length is %u tokens; '%s' fills it and "
                           "leaves no room for an answer.",
                           s->max_model_len, r->prompt_field);
    return api_error_code(e, rc, "context_length_exceeded");
}

// Told as soon as it is known: how many there are nobody has counted.
static int has_more(const struct serving *s, const struct openai_request *r, struct api_error *e) {
    int rc = api_error_set(e, 400, r->prompt_field,
                           "This model's maximum context length is %u tokens; '%s' has more.",
                           s->max_model_len, r->prompt_field);
    return api_error_code(e, rc, "context_length_exceeded");
}

static int encode_failed(const struct serving *s, const struct openai_request *r, int code,
                         const char *text, struct api_error *e) {
    if (code == ERR_REQ_TOO_LARGE) return has_more(s, r, e);
    if (code == ERR_REQ_ABORTED) {
        api_error_set(e, 500, NULL, "%s", text);
        return code;
    }
    bool theirs = code == ERR_REQ_INVALID || code == ERR_REQ_REFUSED;
    return api_error_set(e, theirs ? 400 : 500, r->prompt_field, "%s", text);
}

// What is cut afterwards may be longer before.
static size_t ids_max(const struct serving *s, const struct openai_request *r) {
    return r->truncate_prompt != 0 ? POSITIONS_MAX : s->max_model_len;
}

// --- chats

static int no_memory(struct api_error *e) {
    return api_error_set(e, 500, NULL, "memory is out.");
}

// Hugging Face's code always gives tools and documents, as None when there are none, and a template
// may ask whether they are defined. The request's variables come first, so that ours replace them.
static json_t *template_variables(const struct serving *s, const struct openai_request *r,
                                  json_t *messages) {
    json_t *all = r->template_kwargs == NULL ? json_object() : json_copy(r->template_kwargs);
    json_t *ours =
        json_pack("{s:O, s:b, s:s, s:s, s:O?, s:O?}", "messages", messages, "add_generation_prompt",
                  (int)r->add_generation_prompt, "bos_token", s->bos_token, "eos_token",
                  s->eos_token, "tools", r->tools, "documents", r->documents);
    if (all == NULL || ours == NULL || json_object_update(all, ours) != 0) {
        json_decref(all);
        all = NULL;
    }
    json_decref(ours);
    return all;
}

static int render_chat(const struct serving *s, const struct openai_request *r, json_t *messages,
                       struct chat_output *out, struct api_error *e) {
    struct err_text text = {"memory is out"};
    if (s->chat_template == NULL)
        return api_error_code(
            e,
            api_error_set(e, 400, r->prompt_field,
                          "this model has no chat template; send it a prompt instead."),
            "no_chat_template");
    json_t *variables = template_variables(s, r, messages);
    if (variables == NULL) return no_memory(e);
    int rc = chat_template_render(s->chat_template, variables, env_wall_ns(s->env), out, &text);
    json_decref(variables);
    // Of the template's work; how long the prompt would be nobody knows.
    if (rc == ERR_REQ_TOO_LARGE)
        return api_error_set(e, 400, r->prompt_field, "'%s' cannot be rendered: %s",
                             r->prompt_field, text.text);
    return rc == 0 ? 0 : encode_failed(s, r, rc, text.text, e);
}

static int render(const struct serving *s, const struct openai_request *r, struct chat_output *out,
                  struct api_error *e) {
    json_t *messages = r->messages;
    int rc = 0;
    if (!r->continue_final_message) return render_chat(s, r, messages, out, e);
    messages = continuation_mark(r->messages, e);
    if (messages == NULL) return ERR_REQ_INVALID;
    rc = render_chat(s, r, messages, out, e);
    json_decref(messages);
    if (rc != 0) return rc;
    rc = continuation_cut(out, r->messages, e);
    if (rc != 0) chat_output_finish(out);
    return rc;
}

static int encode_chat(const struct prompt_ask *a, struct id_list *out, struct api_error *e) {
    const struct serving *s = a->serving;
    const struct openai_request *r = a->request;
    const struct encode_bounds bounds = {ids_max(s, r), a->watch};
    struct err_text text = {"memory is out"};
    struct chat_output prompt = {0};
    int rc = render(s, r, &prompt, e);
    if (rc != 0) return rc;
    rc = tokenizer_encode_spans(s->tokenizer, &prompt, &bounds, out, &text);
    chat_output_finish(&prompt);
    return rc == 0 ? 0 : encode_failed(s, r, rc, text.text, e);
}

// --- texts and ids

// A prompt that is no chat is the client's as a whole, so its special tokens count, and the model's
// own ("<s>") are added unless the client says no.
static int encode_text(const struct prompt_ask *a, struct id_list *out, struct api_error *e) {
    const struct serving *s = a->serving;
    const struct openai_request *r = a->request;
    const struct openai_prompt *p = &r->prompts[a->index];
    struct err_text text = {"memory is out"};
    const struct encode_text prompt = {.text = p->text,
                                       .bytes = p->text_bytes,
                                       .parse_special = true,
                                       .ids_max = ids_max(s, r),
                                       .add_special = r->add_special_tokens,
                                       .watch = a->watch};
    int rc = tokenizer_encode(s->tokenizer, &prompt, out, &text);
    return rc == 0 ? 0 : encode_failed(s, r, rc, text.text, e);
}

static int encode_ids(const struct serving *s, const struct openai_request *r,
                      const struct openai_prompt *p, struct id_list *out, struct api_error *e) {
    if (p->n_ids > ids_max(s, r)) return has_more(s, r, e);
    uint32_t *ids = mem_array(p->n_ids, sizeof *ids);
    if (ids == NULL) return no_memory(e);
    memcpy(ids, p->ids, p->n_ids * sizeof *ids);
    *out = (struct id_list){.ids = ids, .n = p->n_ids, .capacity = p->n_ids};
    return 0;
}

// --- the end that is kept

// Tokens that any answer has.
static uint32_t room_least(const struct openai_request *r) {
    return r->prompt_only ? 0 : 1;
}

static int kept_ids(const struct serving *s, const struct openai_request *r, uint32_t *out,
                    struct api_error *e) {
    uint32_t room = r->max_tokens != 0 ? r->max_tokens : room_least(r);
    *out = r->truncate_prompt;
    if (r->truncate_prompt == TRUNCATE_TO_FIT)
        *out = room < s->max_model_len ? s->max_model_len - room : s->max_model_len;
    if (*out <= s->max_model_len) return 0;
    return api_error_set(e, 400, "truncate_prompt_tokens",
                         "'truncate_prompt_tokens' must be at most %u, the model's maximum "
                         "context length.",
                         s->max_model_len);
}

static void keep_last(struct id_list *l, uint32_t n) {
    if (l->n <= n) return;
    memmove(l->ids, l->ids + l->n - n, n * sizeof *l->ids);
    l->n = n;
}

int prompt_encode(const struct prompt_ask *a, struct id_list *out, struct api_error *e) {
    const struct serving *s = a->serving;
    const struct openai_request *r = a->request;
    const struct openai_prompt *p = r->chat ? NULL : &r->prompts[a->index];
    uint32_t kept = 0;
    int rc = r->truncate_prompt == 0 ? 0 : kept_ids(s, r, &kept, e);
    if (rc != 0) return rc;
    rc = r->chat           ? encode_chat(a, out, e)
         : p->text != NULL ? encode_text(a, out, e)
                           : encode_ids(s, r, p, out, e);
    if (rc == 0 && kept != 0) keep_last(out, kept);
    return rc;
}

int prompt_text(const struct serving *s, const uint32_t *ids, size_t n, struct buf *out) {
    struct detok detok;
    size_t cap = detok_bytes_max(s->tokenizer);
    char *piece = mem_alloc(cap);
    if (piece == NULL) return ERR_FATAL_NOMEM;
    detok_init(&detok, s->tokenizer, false);
    for (size_t i = 0; i < n; i++)
        buf_add(out, piece, detok_push(&detok, ids[i], piece, cap));
    buf_add(out, piece, detok_finish(&detok, piece, cap));
    mem_free(piece);
    return out->failed ? ERR_FATAL_NOMEM : 0;
}

int prompt_check_room(const struct serving *s, const struct openai_request *r, size_t n_ids,
                      struct api_error *e) {
    if (n_ids == 0) return api_error_set(e, 400, r->prompt_field, "the prompt is empty.");
    return n_ids + room_least(r) > s->max_model_len ? fills_it(s, r, e) : 0;
}

int prompt_check_model(const struct serving *s, const struct openai_request *r,
                       struct api_error *e) {
    if (r->model == NULL || strcmp(r->model, s->model_name) == 0) return 0;
    int rc = api_error_set(e, 404, "model", "The model '%.200s' does not exist.", r->model);
    return api_error_code(e, rc, "model_not_found");
}
