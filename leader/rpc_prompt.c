// rpc_prompt.c: see rpc_prompt.h. Messages go through openai_messages.c as the JSON that they would
// be over HTTP; texts and ids do not.
#include "leader/rpc_prompt.h"

#include <string.h>

#include "leader/rpc_fill.h"

static int no_memory(struct api_error *e) {
    return api_error_set(e, 500, NULL, "memory is out.");
}

// --- fields

static void needs_messages(struct rpc_fill *f, const char *name, bool given) {
    if (given && f->rc == 0)
        f->rc = api_error_set(f->error, 400, name, "'%s' needs 'messages'.", name);
}

static void check_texts(struct rpc_fill *f, const struct rpc_prompt *p) {
    needs_messages(f, "chat_template_kwargs", p->template_kwargs[0] != '\0');
    needs_messages(f, "tools", p->tools[0] != '\0');
    needs_messages(f, "tool_choice", p->tool_choice[0] != '\0');
    needs_messages(f, "documents", p->documents[0] != '\0');
    needs_messages(f, "continue_final_message", p->continue_final_message);
    needs_messages(f, "add_generation_prompt", p->has_generation_prompt);
}

int rpc_prompt_fill(json_t *fields, const struct rpc_prompt *p, struct api_error *e) {
    struct rpc_fill f = {.fields = fields, .error = e};
    if (!rpc_prompt_is_chat(p)) check_texts(&f, p);
    rpc_fill_json(&f, "chat_template_kwargs", p->template_kwargs);
    rpc_fill_json(&f, "tools", p->tools);
    rpc_fill_string(&f, "tool_choice", p->tool_choice);
    rpc_fill_json(&f, "documents", p->documents);
    if (p->truncate != 0) rpc_fill_value(&f, "truncate_prompt_tokens", json_integer(p->truncate));
    if (p->continue_final_message) rpc_fill_value(&f, "continue_final_message", json_true());
    if (p->has_generation_prompt)
        rpc_fill_value(&f, "add_generation_prompt", json_boolean(p->add_generation_prompt));
    if (p->has_special_tokens)
        rpc_fill_value(&f, "add_special_tokens", json_boolean(p->add_special_tokens));
    return f.rc;
}

// --- the prompt

static int read_text(struct openai_request *r, const char *text, struct api_error *e) {
    size_t bytes = strlen(text);
    char *copy = arena_alloc(&r->arena, bytes + 1);
    if (copy == NULL) return no_memory(e);
    memcpy(copy, text, bytes);
    r->prompts[0] = (struct openai_prompt){.text = copy, .text_bytes = bytes};
    r->prompt_field = "text";
    return 0;
}

static int read_ids(struct openai_request *r, const struct rpc_prompt *p, uint32_t vocab,
                    struct api_error *e) {
    r->prompt_field = "token_ids";
    if (p->n_ids > POSITIONS_MAX)
        return api_error_set(e, 400, "token_ids", "'token_ids' may have at most %d ids.",
                             POSITIONS_MAX);
    for (size_t i = 0; i < p->n_ids; i++) {
        if (p->ids[i] >= vocab)
            return api_error_set(e, 400, "token_ids",
                                 "'token_ids[%zu]' must be below %u, the model's vocabulary.", i,
                                 vocab);
    }
    uint32_t *ids = arena_alloc(&r->arena, p->n_ids * sizeof *ids);
    if (p->n_ids != 0 && ids == NULL) return no_memory(e);
    if (p->n_ids != 0) memcpy(ids, p->ids, p->n_ids * sizeof *ids);
    r->prompts[0] = (struct openai_prompt){.ids = ids, .n_ids = (uint32_t)p->n_ids};
    return 0;
}

// OpenAI's shape of a call.
static json_t *call_of(const Moesaic__V1__ToolCall *call) {
    return json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", call->id, "type", "function", "function",
                     "name", call->name, "arguments", call->arguments);
}

static void add_calls(struct rpc_fill *f, const Moesaic__V1__ChatMessage *m) {
    if (m->n_tool_calls == 0) return;
    json_t *list = json_array();
    for (size_t i = 0; i < m->n_tool_calls && i <= TOOL_CALLS_MAX && f->rc == 0; i++) {
        if (json_array_append_new(list, call_of(m->tool_calls[i])) != 0)
            f->rc = no_memory(f->error);
    }
    rpc_fill_value(f, "tool_calls", list);
}

static json_t *message_of(const Moesaic__V1__ChatMessage *m, struct api_error *e) {
    struct rpc_fill f = {.fields = json_object(), .error = e};
    rpc_fill_value(&f, "role", json_string(m->role));
    if (m->n_tool_calls == 0) rpc_fill_value(&f, "content", json_string(m->content));
    if (m->n_tool_calls != 0) rpc_fill_string(&f, "content", m->content);
    rpc_fill_string(&f, "name", m->name);
    rpc_fill_string(&f, "reasoning_content", m->reasoning_content);
    rpc_fill_string(&f, "tool_call_id", m->tool_call_id);
    add_calls(&f, m);
    if (f.rc == 0) return f.fields;
    json_decref(f.fields);
    return NULL;
}

// What would be lists and objects of a body over HTTP is bounded as there.
static int count_messages(struct openai_request *r, const struct rpc_prompt *p,
                          struct api_error *e) {
    uint64_t n = r->counts.n_containers;
    for (size_t i = 0; i < p->n_messages; i++)
        n += 1 + 2 * (uint64_t)p->messages[i]->n_tool_calls;
    if (n > JSON_CONTAINERS_MAX)
        return api_error_set(e, 400, "messages", "'messages' have more than %u lists and objects.",
                             JSON_CONTAINERS_MAX);
    r->counts.n_containers = (uint32_t)n;
    return 0;
}

static int read_messages(struct openai_request *r, const struct rpc_prompt *p,
                         struct api_error *e) {
    json_t *list = json_array();
    int rc = list == NULL ? no_memory(e) : count_messages(r, p, e);
    // One more than allowed is enough to be refused.
    for (size_t i = 0; i < p->n_messages && i <= MESSAGES_MAX && rc == 0; i++) {
        json_t *message = message_of(p->messages[i], e);
        if (message == NULL)
            rc = ERR_REQ_INVALID;
        else if (json_array_append_new(list, message) != 0)
            rc = no_memory(e);
    }
    if (rc == 0) rc = openai_messages(r, list, e);
    json_decref(list);
    return rc;
}

int rpc_prompt_read(struct openai_request *r, const struct rpc_prompt *p, uint32_t vocab,
                    struct api_error *e) {
    if (rpc_prompt_is_chat(p)) return read_messages(r, p, e);
    r->prompts = arena_alloc(&r->arena, sizeof *r->prompts);
    if (r->prompts == NULL) return no_memory(e);
    r->n_prompts = 1;
    return p->text[0] != '\0' ? read_text(r, p->text, e) : read_ids(r, p, vocab, e);
}
