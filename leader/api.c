// api.c: see api.h. Handlers run on the HTTP thread and never wait: pages are made from copies,
// generation goes to the render pool.
#include "leader/api.h"

#include <string.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/log_gate.h"
#include "common/base/mem.h"
#include "leader/answer.h"
#include "leader/http_answer.h"
#include "leader/openapi.h"
#include "leader/render.h"
#include "leader/rpc.h"
#include "leader/status.h"
#include "leader/stream.h"
#include "leader/tokens.h"

#define RENDER_THREADS 3 // large prompts leave one free
#define JSON "application/json"
#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct api {
    struct serving *serving;
    struct http *http;
    struct rpc *rpc; // NULL: no gRPC
    uint16_t grpc_port;
    struct render *render;
    struct stream *stream;
    struct buf document;      // of GET /openapi.json
    struct log_gate refusals; // HTTP's thread
};

// --- answers

static void reply(struct http_call *call, int status, const char *type, struct buf *body) {
    struct http_reply r = {.status = status, .content_type = type, .body = *body};
    if (status == 503) r.retry_after_s = 1;
    http_call_reply(call, &r);
}

// --- who may ask

// As gRPC's: a line for each, but no more than a few in a while.
static const char *refuse(struct api *a, struct http_call *call, const char *why) {
    char peer[HTTP_PEER_BYTES];
    uint32_t n_more;
    bool shown = log_gate_pass_late(&a->refusals, env_now_ns(a->serving->env), &n_more);
    if (n_more > 0) log_event(LOG_WARN, "http", "more calls refused", log_uint("count", n_more));
    if (shown) {
        http_call_peer(call, peer);
        log_event(LOG_WARN, "http", "call refused", log_text("peer", peer),
                  log_text("reason", "the key is missing or wrong"));
    }
    return why;
}

static const char *refusal(void *context, struct http_call *call) {
    struct api *a = context;
    const struct keys *keys = a->serving->keys;
    const char *header = http_call_header(call, "Authorization");
    if (keys == NULL) return NULL;
    if (header == NULL)
        return refuse(a, call, "You didn't provide an API key: send Authorization: Bearer KEY.");
    int32_t key = keys_find(keys, header, strlen(header));
    http_call_set_key(call, key);
    return key != KEY_NONE ? NULL : refuse(a, call, "Incorrect API key provided.");
}

// --- generation

static void generate(struct api *a, struct http_call *call, bool chat) {
    struct api_error e;
    if (render_take(a->render, http_answer_client(call, chat))) return;
    api_error_set(&e, 503, NULL, "memory is out.");
    http_answer_error(call, &e);
}

static void chat_completions(void *context, struct http_call *call) {
    generate(context, call, true);
}

static void completions(void *context, struct http_call *call) {
    generate(context, call, false);
}

static void tokenize(void *context, struct http_call *call) {
    struct api *a = context;
    tokens_take(a->render, call, TOKENS_ENCODE);
}

static void detokenize(void *context, struct http_call *call) {
    struct api *a = context;
    tokens_take(a->render, call, TOKENS_DECODE);
}

// --- models

static void models(void *context, struct http_call *call) {
    struct api *a = context;
    struct buf body;
    buf_init(&body, 0);
    status_model(&body, a->serving, true);
    reply(call, 200, JSON, &body);
}

static void model(void *context, struct http_call *call) {
    struct api *a = context;
    const char *name = http_call_path(call) + strlen("/v1/models/");
    struct buf body;
    struct api_error e;
    if (strcmp(name, a->serving->model_name) != 0) {
        api_error_set(&e, 404, "model", "The model '%.200s' does not exist.", name);
        api_error_code(&e, 0, "model_not_found");
        http_answer_error(call, &e);
        return;
    }
    buf_init(&body, 0);
    status_model(&body, a->serving, false);
    reply(call, 200, JSON, &body);
}

// --- probes

// Alive means that our own threads run; a group that is not there yet is no reason to kill the
// leader.
static void health(void *context, struct http_call *call) {
    struct api *a = context;
    const struct engine *engine = a->serving->engine;
    struct buf empty;
    buf_init(&empty, 0);
    reply(call, engine->alive(engine->self) ? 200 : 503, "text/plain", &empty);
}

static void ready(void *context, struct http_call *call) {
    struct api *a = context;
    struct buf body;
    buf_init(&body, 0);
    bool yes = status_ready(&body, a->serving);
    reply(call, yes ? 200 : 503, JSON, &body);
}

// Names and hosts are nobody else's business.
static void status(void *context, struct http_call *call) {
    struct api *a = context;
    struct buf body;
    buf_init(&body, 0);
    status_json(&body, a->serving);
    reply(call, 200, JSON, &body);
}

static void version(void *context, struct http_call *call) {
    struct api *a = context;
    struct buf body;
    buf_init(&body, 0);
    status_version(&body, a->serving);
    reply(call, 200, JSON, &body);
}

static void metrics(void *context, struct http_call *call) {
    struct api *a = context;
    struct buf body;
    buf_init(&body, 0);
    status_metrics(&body, a->serving, a->http);
    if (a->rpc != NULL) rpc_metrics(a->rpc, &body);
    reply(call, 200, METRICS_TYPE, &body);
}

static void openapi(void *context, struct http_call *call);

static const struct http_route routes[] = {
    {"/v1/chat/completions",
     HTTP_POST,
     chat_completions,
     true,
     {"createChatCompletion", "The model's answer to messages.", .takes = "ChatRequest",
      .gives = "ChatAnswer", .streams = "ChatChunk"}},
    {"/v1/completions",
     HTTP_POST,
     completions,
     true,
     {"createCompletion", "How the model goes on with a text or token ids.",
      .takes = "CompletionRequest", .gives = "CompletionAnswer", .streams = "CompletionChunk"}},
    {"/tokenize",
     HTTP_POST,
     tokenize,
     true,
     {"tokenize", "The token ids of a prompt.", .takes = "TokenizeRequest",
      .gives = "TokenizeAnswer"}},
    {"/detokenize",
     HTTP_POST,
     detokenize,
     true,
     {"detokenize", "The text of token ids.", .takes = "DetokenizeRequest",
      .gives = "DetokenizeAnswer"}},
    {"/v1/models",
     HTTP_GET,
     models,
     true,
     {"listModels", "The served model, as a list.", .gives = "ModelList"}},
    {"/v1/models/",
     HTTP_GET,
     model,
     true,
     {"retrieveModel", "The served model, by its name.", .gives = "Model"}},
    {"/health",
     HTTP_GET,
     health,
     false,
     {"health", "Whether the leader's own threads run.", .type = "text/plain", .is_probe = true}},
    {"/ready",
     HTTP_GET,
     ready,
     false,
     {"ready", "Whether a request would be served now.", .gives = "Readiness", .is_probe = true}},
    {"/status",
     HTTP_GET,
     status,
     true,
     {"status", "The cluster as moectl status shows it.", .gives = "Status"}},
    {"/version",
     HTTP_GET,
     version,
     false,
     {"version", "The leader's version and build.", .gives = "Version"}},
    {"/metrics",
     HTTP_GET,
     metrics,
     false,
     {"metrics", "Counters for Prometheus.", .type = METRICS_TYPE}},
    {"/openapi.json", HTTP_GET, openapi, true, {"openapi", "This document.", .gives = "Document"}},
};

#define N_ROUTES (sizeof routes / sizeof *routes)

static void openapi(void *context, struct http_call *call) {
    struct api *a = context;
    struct buf body;
    buf_init(&body, 0);
    buf_add(&body, a->document.data, a->document.bytes);
    reply(call, 200, JSON, &body);
}

// Once: nothing of it changes while a server runs, and it takes HTTP's thread too long.
static int write_document(struct api *a, struct err_text *e) {
    const struct serving *s = a->serving;
    buf_init(&a->document, 0);
    const struct openapi_facts facts = {
        .version = s->version,
        .model = s->model_name,
        .defaults = &s->defaults,
        .max_model_len = s->max_model_len,
        .vocab = s->defaults.vocab,
        .choices_max = s->admit.max,
        .keys = s->keys != NULL ? OPENAPI_KEYS_NEEDED : OPENAPI_KEYS_NONE,
    };
    openapi_write(&a->document, &facts, routes, N_ROUTES);
    return a->document.failed ? err_set(e, ERR_FATAL_NOMEM, "no memory for the API's document") : 0;
}

void api_openapi(struct buf *out, const char *version) {
    const struct openapi_facts facts = {.version = version};
    openapi_write(out, &facts, routes, N_ROUTES);
}

// --- life

static int start_server(struct api *a, const struct api_config *config, uint16_t *port,
                        struct err_text *e) {
    struct http_config http = {
        .env = a->serving->env,
        .host = config->host,
        .port = config->port,
        .routes = routes,
        .n_routes = N_ROUTES,
        .context = a,
        .refusal = refusal,
        .tls = config->tls,
        .connections_max = config->connections_max,
        .call_bytes_max = REQUEST_BYTES_MAX,
        .bodies_bytes_max = BODIES_BYTES_MAX,
        .idle_timeout_s = config->timeout_s,
    };
    return http_start(&a->http, &http, port, e);
}

static int start_rpc(struct api *a, const struct api_config *config, struct err_text *e) {
    struct rpc_config rpc = {
        .serving = a->serving,
        .render = a->render,
        .host = config->host,
        .port = config->grpc_port,
        .connection_age_ms = (int)(config->grpc_connection_age_ns / NS_PER_MS),
        .tls = config->tls,
        .calls_max = config->connections_max,
        .bodies_bytes_max = BODIES_BYTES_MAX,
    };
    int rc = config->grpc ? rpc_start(&a->rpc, &rpc, &a->grpc_port, e) : 0;
    if (rc == 0) return 0;
    struct err_text cause = *e;
    return err_set(e, rc, "--grpc-port %u: %s", config->grpc_port, cause.text);
}

int api_start(struct api **out, const struct api_config *config, uint16_t *port,
              struct err_text *e) {
    struct api *a = mem_zalloc(sizeof *a);
    if (a == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for the API");
    a->serving = config->serving;
    int rc = write_document(a, e);
    if (rc == 0) rc = stream_create(&a->stream, a->serving, e);
    if (rc == 0) rc = render_create(&a->render, a->serving, a->stream, RENDER_THREADS, e);
    if (rc == 0) rc = start_rpc(a, config, e);
    if (rc == 0) rc = start_server(a, config, port, e);
    if (rc != 0) {
        api_destroy(a);
        return rc;
    }
    *out = a;
    return 0;
}

uint16_t api_grpc_port(const struct api *a) {
    return a->grpc_port;
}

void api_drain(struct api *a) {
    atomic_store(&a->serving->draining, true);
    if (a->rpc != NULL) rpc_drain(a->rpc);
    http_drain(a->http);
}

bool api_idle(struct api *a) {
    return http_drained(a->http) && (a->rpc == NULL || rpc_n_calls(a->rpc) == 0) &&
           a->serving->admit.in_flight == 0;
}

void api_stop(struct api *a) {
    api_drain(a);
    http_stop(a->http);
    rpc_stop(a->rpc);
    render_destroy(a->render);
    a->render = NULL;
}

void api_destroy(struct api *a) {
    if (a == NULL) return;
    rpc_stop(a->rpc);
    render_destroy(a->render);
    stream_destroy(a->stream);
    http_destroy(a->http);
    rpc_destroy(a->rpc);
    buf_finish(&a->document);
    mem_free(a);
}
