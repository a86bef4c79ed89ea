// openapi_answers.c: the bodies of answers as tables: what answer.c, tokens.c, status.c and
// status_json.c write, name by name. Objects are closed, so a name that is written and does not
// stand here fails the test that compares (tests/e2e/test_openapi.py).
//
// A part reads "name: type; about", with name? where it may be missing; "..." leaves an object
// open. A type is a word (string, integer, count, number, boolean, null, digest, code), A|B for
// several, =A|B for these texts, #NAME for an object of the tables; [] behind it makes a list, {} a
// map, ? adds null.
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "leader/answer.h"
#include "leader/openapi.h"

#define PARTS_MAX 32
#define PART_BYTES_MAX 128

struct object {
    const char *name;
    const char *parts[PARTS_MAX]; // up to NULL
};

// --- the tables

#define HEAD(object)                                                                               \
    "id: string", object, "created: count; Unix time.", "model: string",                           \
        "system_fingerprint: string; Build and model.",                                            \
        "seed: integer; The request's, or the one that was drawn."
#define STOP_REASON                                                                                \
    "string|integer|null; The string of stop, or the id of stop_token_ids, that ended it."
#define SCORES "prompt_logprobs?: #PromptLogprob{}?[]; By token id; null for the first."
#define EXTRAS                                                                                     \
    "digest?: digest; With --digest: equal ones came from equal logits.",                          \
        "token_ids?: count[]; With return_token_ids."

static const struct object chats[] = {
    {"ChatAnswer",
     {HEAD("object: =chat.completion"), SCORES, "choices: #ChatChoice[]", "usage: #Usage"}},
    {"ChatChoice",
     {"index: count", "message: #AnswerMessage", "logprobs: #ChatLogprobs?",
      "finish_reason: =stop|length|tool_calls", "stop_reason: " STOP_REASON, EXTRAS}},
    {"AnswerMessage",
     {"role: =assistant", "content: string?; null where there are only calls.", "refusal: null",
      "tool_calls?: #AnswerToolCall[]"}},
    {"ChatChunk",
     {HEAD("object: =chat.completion.chunk"), "choices: #ChatChunkChoice[]", "usage?: #Usage?"}},
    {"ChatChunkChoice",
     {"index: count", "delta: #Delta", "logprobs: #ChatLogprobs?",
      "finish_reason: =stop|length|tool_calls?", "stop_reason?: " STOP_REASON, EXTRAS}},
    {"Delta", {"role?: =assistant", "content?: string", "tool_calls?: #DeltaToolCall[]"}},
    {"AnswerToolCall", {"id: string", "type: =function", "function: #AnswerFunction"}},
    {"DeltaToolCall",
     {"index: count", "id: string", "type: =function", "function: #AnswerFunction"}},
    {"AnswerFunction", {"name: string", "arguments: string; The JSON text of an object."}},
    {"ChatLogprobs", {"content: #TokenLogprob[]", "refusal: null"}},
    {"TokenLogprob",
     {"token: string", "logprob: number", "bytes: count[]", "top_logprobs: #TopLogprob[]"}},
    {"TopLogprob", {"token: string", "logprob: number", "bytes: count[]"}},
};

static const struct object completions[] = {
    {"CompletionAnswer",
     {HEAD("object: =text_completion"), "choices: #CompletionChoice[]", "usage: #Usage"}},
    {"CompletionChoice",
     {"index: count", "text: string", "logprobs: #CompletionLogprobs?", SCORES,
      "finish_reason: =stop|length", "stop_reason: " STOP_REASON, EXTRAS}},
    {"CompletionChunk",
     {HEAD("object: =text_completion"), "choices: #CompletionChunkChoice[]", "usage?: #Usage?"}},
    {"CompletionChunkChoice",
     {"index: count", "text: string", "logprobs: #CompletionLogprobs?",
      "finish_reason: =stop|length?", "stop_reason?: " STOP_REASON, EXTRAS}},
    {"CompletionLogprobs",
     {"tokens: string[]", "token_logprobs: number?[]", "top_logprobs: number{}?[]",
      "text_offset: count[]"}},
    {"PromptLogprob", {"logprob: number", "rank: count", "decoded_token: string"}},
    {"Usage",
     {"prompt_tokens: count", "completion_tokens: count", "total_tokens: count",
      "prompt_tokens_details: #PromptTokensDetails"}},
    {"PromptTokensDetails", {"cached_tokens: count"}},
};

static const struct object pages[] = {
    {"TokenizeAnswer",
     {"count: count", "max_model_len: count", "tokens: count[]",
      "token_strs: string[]?; With return_token_strs."}},
    {"DetokenizeAnswer", {"prompt: string"}},
    {"ModelList", {"object: =list", "data: #Model[]"}},
    {"Model",
     {"id: string", "object: =model", "created: count; Unix time of the server's start.",
      "owned_by: string", "root: string", "parent: null",
      "max_model_len: count; Tokens of prompt and answer.",
      "meta: #ModelMeta; As llama-server has it.", "permission: #ModelPermission[]"}},
    {"ModelMeta", {"n_vocab: count; Ids of tokens are below it."}},
    {"ModelPermission",
     {"id: string", "object: =model_permission", "created: count", "allow_create_engine: boolean",
      "allow_sampling: boolean", "allow_logprobs: boolean", "allow_search_indices: boolean",
      "allow_view: boolean", "allow_fine_tuning: boolean", "organization: string", "group: null",
      "is_blocking: boolean"}},
    {"Readiness", {"ready: boolean", "state: string; What is awaited."}},
    {"Version", {"version: string", "build: string"}},
    {"Document", {"openapi: string", "..."}},
    {"Error", {"error: #ErrorDetail"}},
    {"ErrorDetail",
     {"message: string", "type: =invalid_request_error|rate_limit_error|server_error",
      "param: string?; The field.", "code: code?"}},
};

static const struct object statuses[] = {
    {"Status",
     {"object: =moesaic.status",
      "model: string",
      "version: string",
      "build: string",
      "started: count",
      "uptime_s: number?",
      "state: =ready|waiting|loading|forming|leaving|draining|stuck",
      "reason: string",
      "ready: boolean",
      "epoch: count",
      "workers_wanted: count",
      "workers_ready: count",
      "load_share: number?",
      "requests: #StatusRequests",
      "kv: #StatusKv",
      "totals: #StatusTotals",
      "limits: #StatusLimits",
      "recent: #StatusRecent",
      "membership: #StatusMembership",
      "layout: #StatusLayout",
      "workers: #StatusWorker[]"}},
    {"StatusRequests",
     {"running: count", "waiting: count", "admitted: count", "admitted_max: count", "lost: count",
      "resuming: count", "preempted: count", "replayed: count",
      "finished: count{}; By the reason of their end.", "rejected: count{}; By reason."}},
    {"StatusKv",
     {"block_tokens: count", "blocks: count", "blocks_used: count",
      "snapshots: count; Places for copies of sequences' states.", "snapshots_used: count",
      "dtype: string"}},
    {"StatusTotals", {"prompt_tokens: count", "generation_tokens: count", "steps: count"}},
    {"StatusLimits", {"max_model_len: count", "max_num_seqs: count"}},
    {"StatusRecent",
     {"seconds: number?", "prompt_tokens_per_s: number?", "generation_tokens_per_s: number?",
      "first_token_s: #Quantiles", "between_tokens_s: #Quantiles"}},
    {"Quantiles", {"p50: number?", "p95: number?"}},
    {"StatusMembership",
     {"joined: count", "refused: count", "lost: count", "left: count", "formed: count",
      "closed: count"}},
    {"StatusLayout", {"pp: count", "dp: count", "tp: count", "ep: count", "etp: count"}},
    {"StatusWorker",
     {"rank: count",
      "stage: count",
      "dp_group: count",
      "tp_index: count",
      "ep_place: count",
      "etp_index: count",
      "first_layer: count",
      "layers: count",
      "first_expert: count",
      "experts: count",
      "name: string",
      "host: string",
      "state: =free|joined|loading|loaded|forming|ready|lost",
      "kernels: string",
      "cores: count",
      "bytes_loaded: count",
      "bytes_to_load: count",
      "heartbeat_age_s: number?",
      "engine_age_s: number?",
      "steps: count",
      "requests_running: count",
      "generation_tokens: count",
      "tokens_per_s: number?",
      "kv_blocks: count",
      "kv_blocks_used: count",
      "bytes_sent: count",
      "bytes_received: count"}},
};

// --- types to schemas

// The parts of "A|B" as a list of texts.
static json_t *words(char *text) {
    json_t *list = json_array();
    char *rest = text;
    for (char *word; (word = strsep(&rest, "|")) != NULL;) {
        if (json_array_append_new(list, json_string(word)) != 0) break;
    }
    return list;
}

static json_t *error_codes(void) {
    json_t *list = json_array();
    for (size_t i = 0; answer_error_code(i) != NULL; i++)
        json_array_append_new(list, json_string(answer_error_code(i)));
    return json_pack("{s:o}", "enum", list);
}

static json_t *plain(char *type) {
    if (type[0] == '#') return openapi_ref(type + 1);
    if (type[0] == '=') return json_pack("{s:o}", "enum", words(type + 1));
    if (strcmp(type, "code") == 0) return error_codes();
    if (strcmp(type, "count") == 0) return json_pack("{s:s, s:i}", "type", "integer", "minimum", 0);
    if (strcmp(type, "digest") == 0)
        return json_pack("{s:s, s:s}", "type", "string", "pattern", "^[0-9a-f]{16}$");
    if (strchr(type, '|') != NULL) return json_pack("{s:o}", "type", words(type));
    return json_pack("{s:s}", "type", type);
}

// Takes one sign off the type's end; 0 when there is none.
static char take_sign(char *type) {
    size_t n = strlen(type);
    char sign = 0;
    if (n > 1 && type[n - 1] == '?') {
        sign = '?';
        n -= 1;
    } else if (n > 2 && (type[n - 1] == ']' || type[n - 1] == '}')) {
        sign = type[n - 1];
        n -= 2;
    }
    type[n] = '\0';
    return sign;
}

static json_t *or_null(json_t *schema) {
    json_t *type = json_object_get(schema, "type");
    if (!json_is_string(type)) return json_pack("{s:[o, {s:s}]}", "anyOf", schema, "type", "null");
    json_object_set_new(schema, "type", json_pack("[O, s]", type, "null"));
    return schema;
}

static json_t *wrap(json_t *schema, char sign) {
    switch (sign) {
    case ']': return json_pack("{s:s, s:o}", "type", "array", "items", schema);
    case '}': return json_pack("{s:s, s:o}", "type", "object", "additionalProperties", schema);
    default: return or_null(schema);
    }
}

static json_t *schema_of(char *type, const char *about) {
    char signs[4];
    size_t n = 0;
    while (n < sizeof signs && (signs[n] = take_sign(type)) != 0)
        n++;
    json_t *out = plain(type);
    while (n > 0)
        out = wrap(out, signs[--n]);
    if (out != NULL && about != NULL) json_object_set_new(out, "description", json_string(about));
    return out;
}

// --- objects to schemas

// Cuts the text behind the separator and returns what follows, or NULL.
static char *cut(char *text, const char *separator) {
    char *at = strstr(text, separator);
    if (at == NULL) return NULL;
    *at = '\0';
    return at + strlen(separator);
}

static int add_part(json_t *schema, const char *text) {
    char part[PART_BYTES_MAX];
    check(snprintf(part, sizeof part, "%s", text) < PART_BYTES_MAX);
    char *type = cut(part, ": ");
    if (type == NULL) return json_object_del(schema, "additionalProperties");
    char *about = cut(type, "; ");
    int rc = 0;
    if (take_sign(part) == 0)
        rc = json_array_append_new(json_object_get(schema, "required"), json_string(part));
    return rc |
           json_object_set_new(json_object_get(schema, "properties"), part, schema_of(type, about));
}

static int add_object(json_t *out, const struct object *o) {
    json_t *schema = json_pack("{s:s, s:{}, s:[], s:b}", "type", "object", "properties", "required",
                               "additionalProperties", 0);
    int rc = json_object_set_new(out, o->name, schema);
    for (size_t i = 0; i < PARTS_MAX && o->parts[i] != NULL; i++)
        rc |= add_part(schema, o->parts[i]);
    return rc;
}

static int add_all(json_t *out, const struct object *objects, size_t n) {
    int rc = 0;
    for (size_t i = 0; i < n; i++)
        rc |= add_object(out, &objects[i]);
    return rc;
}

#define ADD(out, table) add_all(out, table, sizeof table / sizeof *table)

json_t *openapi_answers(void) {
    json_t *out = json_object();
    if (out != NULL &&
        (ADD(out, chats) | ADD(out, completions) | ADD(out, pages) | ADD(out, statuses)) == 0)
        return out;
    json_decref(out);
    return NULL;
}
