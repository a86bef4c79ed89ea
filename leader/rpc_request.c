// rpc_request.c: see rpc_request.h. Scalars and short lists go through openai_fields.c as the JSON
// values that they would be over HTTP (rpc_fields.c); long lists and texts do not (rpc_prompt.c).
#include "leader/rpc_request.h"

#include <jansson.h>
#include <stdio.h>

#include "leader/openai_fields.h"
#include "leader/rpc_fields.h"
#include "leader/rpc_prompt.h"
#include "leader/rpc_walk.h"

typedef Moesaic__V1__GenerateRequest Message;

struct reader {
    struct openai_request *request;
    const Message *message;
    struct rpc_prompt prompt;
    const struct openai_defaults *defaults;
    struct api_error *error;
};

// --- the message as a whole

static struct rpc_prompt prompt_of(const Message *m) {
    return (struct rpc_prompt){.text = m->text,
                               .n_ids = m->n_token_ids,
                               .ids = m->token_ids,
                               .n_messages = m->n_messages,
                               .messages = m->messages,
                               .template_kwargs = m->chat_template_kwargs,
                               .tools = m->tools,
                               .tool_choice = m->tool_choice,
                               .documents = m->documents,
                               .truncate = m->truncate_prompt_tokens,
                               .continue_final_message = m->continue_final_message,
                               .has_generation_prompt = m->optional_add_generation_prompt_case != 0,
                               .add_generation_prompt = m->add_generation_prompt,
                               .has_special_tokens = m->optional_add_special_tokens_case != 0,
                               .add_special_tokens = m->add_special_tokens};
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
    // The text begins with the prompt, so its tokens have theirs, too.
    if (m->echo && !r->request->prompt_logprobs) {
        r->request->prompt_logprobs = true;
        r->request->n_prompt_logprobs = m->logprobs;
    }
    return 0;
}

// The stream is said afterwards: its log-probabilities are not bound to what one event of HTTP may
// hold.
static int read_fields(struct reader *r) {
    struct openai_reader fields = {
        .request = r->request, .defaults = r->defaults, .error = r->error};
    r->request->root = json_object();
    if (r->request->root == NULL) return api_error_set(r->error, 500, NULL, "memory is out.");
    int rc = rpc_fields_fill(r->request->root, r->message, r->error);
    if (rc == 0) rc = rpc_prompt_fill(r->request->root, &r->prompt, r->error);
    if (rc == 0) rc = openai_fields_read(&fields, r->request->root);
    if (rc == 0) rc = openai_fields_check(&fields);
    if (rc == 0) rc = read_logprobs(r);
    r->request->has_seed = r->message->optional_seed_case != 0;
    r->request->seed = (int64_t)r->message->seed;
    r->request->stream = r->request->return_token_ids = true;
    r->request->tool_format = NULL; // its clients get the text as the model wrote it
    return rc;
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
    if (rc == 0) rc = rpc_prompt_read(&request, &r->prompt, r->defaults->vocab, r->error);
    if (rc != 0)
        openai_request_finish(&request);
    else
        *out = request;
    return rc;
}

int rpc_request_parse(struct openai_request *out, char request_id[REQUEST_ID_BYTES_MAX + 1],
                      const struct rpc_message *message, const struct openai_defaults *defaults,
                      struct api_error *e) {
    static const ProtobufCMessageDescriptor *const kind =
        &moesaic__v1__generate_request__descriptor;
    struct reader r = {.defaults = defaults, .error = e};
    struct rpc_unpacked unpacked;
    int rc = rpc_unpack(&unpacked, kind, message, e);
    if (rc == 0) rc = rpc_walk(kind, message, e);
    r.message = (const Message *)unpacked.message;
    if (rc == 0) {
        r.prompt = prompt_of(r.message);
        rc = read_message(&r, out, request_id);
    }
    rpc_unpacked_finish(&unpacked);
    return rc;
}
