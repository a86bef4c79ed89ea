// api.c: see api.h. Handlers run on the HTTP thread and never wait: pages are made from copies,
// generation goes to the render pool.
#include "leader/api.h"

#include <string.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "leader/answer.h"
#include "leader/http_answer.h"
#include "leader/render.h"
#include "leader/rpc.h"
#include "leader/status.h"
#include "leader/stream.h"

#define RENDER_THREADS 2
#define BODIES_BYTES_MAX (UINT64_C(512) << 20)
#define IDLE_TIMEOUT_S 75 // longer than the keep-alive of common proxies (60 s)
#define JSON "application/json"

struct api {
    struct serving *serving;
    struct http *http;
    struct rpc *rpc; // NULL: no gRPC
    uint16_t grpc_port;
    struct render *render;
    struct stream *stream;
};

// --- answers

static void reply(struct http_call *call, int status, const char *type, struct buf *body) {
    struct http_reply r = {.status = status, .content_type = type, .body = *body};
    if (status == 503) r.retry_after_s = 1;
    http_call_reply(call, &r);
}

// --- who may ask

// The time taken tells nothing about how much of the key was right.
static bool same_secret(const char *given, const char *key) {
    size_t n = strlen(given), n_key = strlen(key);
    unsigned char difference = n != n_key;
    for (size_t i = 0; i < n; i++)
        difference |= (unsigned char)(given[i] ^ key[n_key == 0 ? 0 : i % n_key]);
    return difference == 0;
}

static bool allowed(struct api *a, struct http_call *call) {
    static const char scheme[] = "Bearer ";
    const char *header = http_call_header(call, "Authorization");
    struct api_error e;
    if (a->serving->api_key == NULL) return true;
    if (header != NULL && strncmp(header, scheme, sizeof scheme - 1) == 0 &&
        same_secret(header + sizeof scheme - 1, a->serving->api_key))
        return true;
    api_error_set(&e, 401, NULL, "Incorrect API key provided.");
    api_error_code(&e, 0, "invalid_api_key");
    http_answer_error(call, &e);
    return false;
}

// --- generation

static void generate(struct api *a, struct http_call *call, bool chat) {
    struct api_error e;
    if (!allowed(a, call) || render_take(a->render, http_answer_client(call, chat))) return;
    api_error_set(&e, 503, NULL, "memory is out.");
    http_answer_error(call, &e);
}

static void chat_completions(void *context, struct http_call *call) {
    generate(context, call, true);
}

static void completions(void *context, struct http_call *call) {
    generate(context, call, false);
}

// --- models

static void models(void *context, struct http_call *call) {
    struct api *a = context;
    struct buf body;
    if (!allowed(a, call)) return;
    buf_init(&body, 0);
    status_model(&body, a->serving, true);
    reply(call, 200, JSON, &body);
}

static void model(void *context, struct http_call *call) {
    struct api *a = context;
    const char *name = http_call_path(call) + strlen("/v1/models/");
    struct buf body;
    struct api_error e;
    if (!allowed(a, call)) return;
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
    if (!allowed(a, call)) return;
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
    reply(call, 200, "text/plain; version=0.0.4; charset=utf-8", &body);
}

static const struct http_route routes[] = {
    {"/v1/chat/completions", HTTP_POST, chat_completions},
    {"/v1/completions", HTTP_POST, completions},
    {"/v1/models", HTTP_GET, models},
    {"/v1/models/", HTTP_GET, model},
    {"/health", HTTP_GET, health},
    {"/ready", HTTP_GET, ready},
    {"/status", HTTP_GET, status},
    {"/version", HTTP_GET, version},
    {"/metrics", HTTP_GET, metrics},
};

// --- life

static int start_server(struct api *a, const struct api_config *config, uint16_t *port,
                        struct err_text *e) {
    struct http_config http = {
        .env = a->serving->env,
        .host = config->host,
        .port = config->port,
        .routes = routes,
        .n_routes = sizeof routes / sizeof *routes,
        .context = a,
        .connections_max = config->connections_max,
        .call_bytes_max = REQUEST_BYTES_MAX,
        .bodies_bytes_max = BODIES_BYTES_MAX,
        .idle_timeout_s = IDLE_TIMEOUT_S,
    };
    return http_start(&a->http, &http, port, e);
}

static int start_rpc(struct api *a, const struct api_config *config, struct err_text *e) {
    struct rpc_config rpc = {
        .serving = a->serving,
        .render = a->render,
        .host = config->host,
        .port = config->grpc_port,
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
    int rc = stream_create(&a->stream, a->serving, e);
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
    mem_free(a);
}
