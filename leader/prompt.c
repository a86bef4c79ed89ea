// prompt.c: see prompt.h.
#include "leader/prompt.h"

#include <jansson.h>
#include <string.h>

#include "common/base/mem.h"

static int too_long(const struct serving *s, const struct openai_request *r, struct api_error *e) {
    int rc = api_error_set(e, 400, r->prompt_field,
                           "This model's maximum context length is %u tokens; '%s' fills it and "
                           "leaves no room for an answer.",
                           s->max_model_len, r->prompt_field);
    return api_error_code(e, rc, "context_length_exceeded");
}

static int encode_failed(const struct serving *s, const struct openai_request *r, int code,
                         const char *text, struct api_error *e) {
    if (code == ERR_REQ_TOO_LARGE) return too_long(s, r, e);
    return api_error_set(e, code == ERR_REQ_INVALID ? 400 : 500, r->prompt_field, "%s", text);
}

static int encode_chat(const struct serving *s, const struct openai_request *r, struct id_list *out,
                       struct api_error *e) {
    struct err_text text = {"memory is out"};
    struct chat_output prompt = {0};
    if (s->chat_template == NULL)
        return api_error_code(
            e,
            api_error_set(e, 400, r->prompt_field,
                          "this model has no chat template; send it a prompt instead."),
            "no_chat_template");
    json_t *variables = json_pack("{s:O, s:b, s:s, s:s}", "messages", r->messages,
                                  "add_generation_prompt", (int)r->add_generation_prompt,
                                  "bos_token", s->bos_token, "eos_token", s->eos_token);
    if (variables == NULL) return api_error_set(e, 500, NULL, "memory is out.");
    int rc = chat_template_render(s->chat_template, variables, env_wall_ns(s->env), &prompt, &text);
    json_decref(variables);
    if (rc == 0) {
        rc = tokenizer_encode_spans(s->tokenizer, &prompt, s->max_model_len, out, &text);
        chat_output_finish(&prompt);
    }
    return rc == 0 ? 0 : encode_failed(s, r, rc, text.text, e);
}

// A prompt that is no chat is the client's as a whole, so its special tokens count, and the model's
// own ("<s>") are added unless the client says no.
static int encode_text(const struct serving *s, const struct openai_request *r,
                       const struct openai_prompt *p, struct id_list *out, struct api_error *e) {
    struct err_text text = {"memory is out"};
    const struct encode_text prompt = {.text = p->text,
                                       .bytes = p->text_bytes,
                                       .parse_special = true,
                                       .ids_max = s->max_model_len,
                                       .add_special = r->add_special_tokens};
    int rc = tokenizer_encode(s->tokenizer, &prompt, out, &text);
    return rc == 0 ? 0 : encode_failed(s, r, rc, text.text, e);
}

static int encode_ids(const struct serving *s, const struct openai_request *r,
                      const struct openai_prompt *p, struct id_list *out, struct api_error *e) {
    if (p->n_ids > s->max_model_len) return too_long(s, r, e);
    uint32_t *ids = mem_array(p->n_ids, sizeof *ids);
    if (ids == NULL) return api_error_set(e, 500, NULL, "memory is out.");
    memcpy(ids, p->ids, p->n_ids * sizeof *ids);
    *out = (struct id_list){.ids = ids, .n = p->n_ids, .capacity = p->n_ids};
    return 0;
}

int prompt_encode(const struct serving *s, const struct openai_request *r, uint32_t prompt,
                  struct id_list *out, struct api_error *e) {
    const struct openai_prompt *p = r->chat ? NULL : &r->prompts[prompt];
    return r->chat           ? encode_chat(s, r, out, e)
           : p->text != NULL ? encode_text(s, r, p, out, e)
                             : encode_ids(s, r, p, out, e);
}

int prompt_check_room(const struct serving *s, const struct openai_request *r, size_t n_ids,
                      struct api_error *e) {
    if (n_ids == 0) return api_error_set(e, 400, r->prompt_field, "the prompt is empty.");
    return n_ids >= s->max_model_len ? too_long(s, r, e) : 0;
}

int prompt_check_model(const struct serving *s, const struct openai_request *r,
                       struct api_error *e) {
    if (r->model == NULL || strcmp(r->model, s->model_name) == 0) return 0;
    int rc = api_error_set(e, 404, "model", "The model '%.200s' does not exist.", r->model);
    return api_error_code(e, rc, "model_not_found");
}
