// rpc_request.c: see rpc_request.h. Scalars and short lists go through openai_fields.c as the JSON
// values that they would be over HTTP (rpc_fields.c); long lists and texts do not.
#include "leader/rpc_request.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/text/utf8.h"
#include "leader/openai_fields.h"
#include "leader/rpc_fields.h"

typedef Moesaic__V1__GenerateRequest Message;

struct reader {
    struct openai_request *request;
    const Message *message;
    const struct openai_defaults *defaults;
    json_t *fields; // owned by the request
    struct api_error *error;
};

static int no_memory(struct reader *r) {
    return api_error_set(r->error, 500, NULL, "memory is out.");
}

// --- zero bytes
// A string of protobuf may hold one, a string of C ends there: what is behind it would be lost
// without a word. So the message is walked once more for them. It was unpacked before, so it is
// well-formed.

struct wire {
    const uint8_t *at, *end;
};

static uint64_t wire_varint(struct wire *w) {
    uint64_t value = 0;
    for (unsigned shift = 0; w->at < w->end; shift += 7) {
        uint8_t byte = *w->at++;
        if (shift < 64) value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) break;
    }
    return value;
}

// The next field's number; *inside is the content of a field with a length, else empty. 0 at the
// end.
static uint32_t wire_next(struct wire *w, struct wire *inside) {
    if (w->at >= w->end) return 0;
    uint64_t key = wire_varint(w), bytes = 0, left;
    *inside = (struct wire){0};
    switch (key & 7) {
    case 0: wire_varint(w); break;
    case 1: bytes = 8; break;
    case 2: bytes = wire_varint(w); break;
    case 5: bytes = 4; break;
    default: return 0;
    }
    left = (uint64_t)(w->end - w->at);
    if (bytes > left) bytes = left;
    if ((key & 7) == 2) *inside = (struct wire){w->at, w->at + bytes};
    w->at += bytes;
    return (uint32_t)(key >> 3);
}

static bool has_zero(struct wire w) {
    return w.at < w.end && memchr(w.at, 0, (size_t)(w.end - w.at)) != NULL;
}

static bool message_has_zero(struct wire w) {
    struct wire inside;
    while (wire_next(&w, &inside) != 0) {
        if (has_zero(inside)) return true;
    }
    return false;
}

// The name of the first field with a zero byte in a string, or NULL.
static const char *find_zero(const struct rpc_message *m) {
    struct wire w = {m->data, m->data + m->bytes}, inside;
    uint32_t number;
    while ((number = wire_next(&w, &inside)) != 0) {
        if (number == 1 && has_zero(inside)) return "text";
        if (number == 3 && message_has_zero(inside)) return "messages";
        if (number == 10 && has_zero(inside)) return "stop";
        if (number == 11 && has_zero(inside)) return "request_id";
        if (number == 14 && has_zero(inside)) return "model";
        if (number == 22 && has_zero(inside)) return "bad_words";
    }
    return NULL;
}

// --- the message as a whole

static int check_strings(struct reader *r, const struct rpc_message *m) {
    const char *field = find_zero(m);
    if (field != NULL)
        return api_error_set(r->error, 400, field, "'%s' must not contain a zero byte.", field);
    if (!utf8_valid(r->message->text, strlen(r->message->text)))
        return api_error_set(r->error, 400, "text", "'text' must be UTF-8.");
    return 0;
}

static int check_inner(struct reader *r, const char *field, size_t i,
                       const ProtobufCMessage *inner) {
    if (inner->n_unknown_fields == 0) return 0;
    return api_error_set(r->error, 400, field, "'%s[%zu]' has a field %u, which is not supported.",
                         field, i, inner->unknown_fields[0].tag);
}

static int check_messages(struct reader *r) {
    const Message *m = r->message;
    for (size_t i = 0; i < m->n_messages; i++) {
        int rc = check_inner(r, "messages", i, &m->messages[i]->base);
        if (rc != 0) return rc;
    }
    for (size_t i = 0; i < m->n_logit_bias; i++) {
        int rc = check_inner(r, "logit_bias", i, &m->logit_bias[i]->base);
        if (rc != 0) return rc;
    }
    return 0;
}

static int check_one_prompt(struct reader *r) {
    const Message *m = r->message;
    int n = (m->text[0] != '\0') + (m->n_token_ids != 0) + (m->n_messages != 0);
    if (n == 1) return 0;
    return api_error_set(r->error, 400, "text",
                         "exactly one of 'text', 'token_ids' and 'messages' must be given.");
}

static int read_id(struct reader *r, char *request_id) {
    const char *id = r->message->request_id;
    if (id[0] != '\0' && !client_id_ok(id))
        return api_error_set(r->error, 400, "request_id",
                             "'request_id' must be at most %d printable ASCII characters without "
                             "spaces.",
                             REQUEST_ID_BYTES_MAX);
    snprintf(request_id, REQUEST_ID_BYTES_MAX + 1, "%s", id);
    return 0;
}

// --- fields

// The two kinds of JSON bodies ask for them in different ways; here is one.
static int read_logprobs(struct reader *r) {
    const Message *m = r->message;
    if (!m->optional_logprobs_case) return 0;
    if (m->logprobs > TOP_LOGPROBS_MAX)
        return api_error_set(r->error, 400, "logprobs", "'logprobs' must be between 0 and %d.",
                             TOP_LOGPROBS_MAX);
    r->request->sampling.want_logprob = true;
    r->request->sampling.n_logprobs = m->logprobs;
    return 0;
}

static int read_fields(struct reader *r) {
    struct openai_reader fields = {
        .request = r->request, .defaults = r->defaults, .error = r->error};
    r->fields = r->request->root = json_object();
    if (r->fields == NULL) return no_memory(r);
    int rc = rpc_fields_fill(r->fields, r->message, r->error);
    if (rc == 0) rc = openai_fields_read(&fields, r->fields);
    if (rc == 0) rc = openai_fields_check(&fields);
    if (rc == 0) rc = read_logprobs(r);
    r->request->has_seed = r->message->optional_seed_case != 0;
    r->request->seed = (int64_t)r->message->seed;
    r->request->stream = r->request->return_token_ids = true;
    return rc;
}

// --- the prompt

static int read_text(struct reader *r, struct openai_prompt *out) {
    size_t bytes = strlen(r->message->text);
    char *text = arena_alloc(&r->request->arena, bytes + 1);
    if (text == NULL) return no_memory(r);
    memcpy(text, r->message->text, bytes);
    *out = (struct openai_prompt){.text = text, .text_bytes = bytes};
    r->request->prompt_field = "text";
    return 0;
}

static int read_ids(struct reader *r, struct openai_prompt *out) {
    const Message *m = r->message;
    r->request->prompt_field = "token_ids";
    if (m->n_token_ids > POSITIONS_MAX)
        return api_error_set(r->error, 400, "token_ids", "'token_ids' may have at most %d ids.",
                             POSITIONS_MAX);
    for (size_t i = 0; i < m->n_token_ids; i++) {
        if (m->token_ids[i] >= r->defaults->vocab)
            return api_error_set(r->error, 400, "token_ids",
                                 "'token_ids[%zu]' must be below %u, the model's vocabulary.", i,
                                 r->defaults->vocab);
    }
    uint32_t *ids = arena_alloc(&r->request->arena, m->n_token_ids * sizeof *ids);
    if (ids == NULL) return no_memory(r);
    memcpy(ids, m->token_ids, m->n_token_ids * sizeof *ids);
    *out = (struct openai_prompt){.ids = ids, .n_ids = (uint32_t)m->n_token_ids};
    return 0;
}

static int add_message(struct reader *r, size_t i, json_t *list) {
    const Moesaic__V1__ChatMessage *one = r->message->messages[i];
    char param[64];
    snprintf(param, sizeof param, "messages[%zu].content", i);
    if (!utf8_valid(one->content, strlen(one->content)))
        return api_error_set(r->error, 400, param, "'%s' must be UTF-8.", param);
    json_t *message = json_object();
    int rc = json_object_set_new(message, "content", json_string(one->content));
    // A role that is not UTF-8 is refused like any other that is unknown.
    bool is_text = utf8_valid(one->role, strlen(one->role));
    rc |= json_object_set_new(message, "role", json_string(is_text ? one->role : ""));
    rc |= json_array_append_new(list, message);
    return rc == 0 ? 0 : no_memory(r);
}

static int read_messages(struct reader *r) {
    json_t *list = json_array();
    int rc = list == NULL ? no_memory(r) : 0;
    // One more than allowed is enough to be refused.
    for (size_t i = 0; i < r->message->n_messages && i <= MESSAGES_MAX && rc == 0; i++)
        rc = add_message(r, i, list);
    if (rc == 0) rc = openai_messages(r->request, list, r->error);
    json_decref(list);
    return rc;
}

static int read_prompt(struct reader *r) {
    struct openai_request *q = r->request;
    if (q->chat) return read_messages(r);
    q->prompts = arena_alloc(&q->arena, sizeof *q->prompts);
    if (q->prompts == NULL) return no_memory(r);
    q->n_prompts = 1;
    return r->message->n_token_ids != 0 ? read_ids(r, q->prompts) : read_text(r, q->prompts);
}

// --- the request

static int read_message(struct reader *r, struct openai_request *out, char *request_id) {
    struct openai_request request;
    int rc = check_one_prompt(r);
    if (rc == 0) rc = read_id(r, request_id);
    if (rc != 0) return rc;
    r->request = &request;
    openai_request_init(&request, r->message->n_messages != 0, r->defaults);
    rc = read_fields(r);
    if (rc == 0) rc = read_prompt(r);
    if (rc != 0)
        openai_request_finish(&request);
    else
        *out = request;
    return rc;
}

int rpc_request_parse(struct openai_request *out, char request_id[REQUEST_ID_BYTES_MAX + 1],
                      const struct rpc_message *message, const struct openai_defaults *defaults,
                      struct api_error *e) {
    struct reader r = {.defaults = defaults, .error = e};
    struct rpc_unpacked unpacked;
    int rc = rpc_unpack(&unpacked, &moesaic__v1__generate_request__descriptor, message, e);
    r.message = (const Message *)unpacked.message;
    if (rc == 0) rc = check_messages(&r);
    if (rc == 0) rc = check_strings(&r, message);
    if (rc == 0) rc = read_message(&r, out, request_id);
    rpc_unpacked_finish(&unpacked);
    return rc;
}
