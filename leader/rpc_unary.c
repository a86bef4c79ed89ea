// rpc_unary.c: see rpc_unary.h. They look at copies and counters and never wait.
#include "leader/rpc_unary.h"

#include <grpc/status.h>

#include "common/base/mem.h"
#include "leader/rpc_call.h"
#include "leader/rpc_info.h"

// A thousand request ids, the longest message of them, have 134 KB.
#define MESSAGE_BYTES_MAX (1u << 20)
#define MESSAGE_WAIT_NS (20 * NS_PER_S)

static const struct rpc_unary methods[RPC_UNARY_COUNT] = {
    {.path = "/moesaic.v1.Generate/Abort", .answer = rpc_abort},
    {.path = "/moesaic.v1.Generate/GetModelInfo", .answer = rpc_model_info},
    {.path = "/moesaic.v1.Generate/GetServerInfo", .answer = rpc_server_info},
    {.path = "/moesaic.v1.Generate/GetLoad", .answer = rpc_load},
};

struct unary_call {
    struct grpc_server_call *grpc; // closed comes before it goes
    bool answered;
};

static void end(struct rpc *r, struct grpc_server_call *grpc, const struct rpc_end *how) {
    counter_add(&r->by_code[how->code], 1);
    if (how->pushback_ms != 0)
        grpc_server_call_end_pushback(grpc, how->code, how->text, how->pushback_ms);
    else
        grpc_server_call_end(grpc, how->code, how->text);
}

// A call that could not be opened has no state.
static void opened(void *context, struct grpc_server_call *grpc, void **state) {
    static const struct rpc_end full = {GRPC_STATUS_RESOURCE_EXHAUSTED, RPC_PUSHBACK_MS,
                                        "too many calls are open; try again later"};
    struct rpc *r = ((const struct rpc_unary *)context)->rpc;
    struct unary_call *c = NULL;
    if (atomic_fetch_add(&r->n_calls, 1) < r->config.calls_max) c = mem_zalloc(sizeof *c);
    *state = c;
    if (c != NULL)
        c->grpc = grpc;
    else
        end(r, grpc, &full);
}

static int make_answer(const struct rpc_unary *u, const struct rpc_message *message,
                       struct buf *out, struct api_error *e) {
    if (message->bytes > MESSAGE_BYTES_MAX)
        return api_error_set(e, 400, NULL, "the message has more than %u bytes.",
                             MESSAGE_BYTES_MAX);
    int rc = u->answer(u->rpc, message, out, e);
    return rc == 0 && out->failed ? api_error_set(e, 500, NULL, "memory is out.") : rc;
}

static void message(void *context, void *state, const uint8_t *data, size_t bytes) {
    const struct rpc_unary *u = context;
    struct rpc_message in = {.data = data, .bytes = bytes};
    struct rpc_end how = {.code = GRPC_STATUS_OK};
    struct unary_call *c = state;
    struct api_error e;
    struct buf out;
    if (c == NULL || c->answered) return;
    c->answered = true;
    in.key = grpc_server_call_key(c->grpc);
    buf_init(&out, 0);
    if (make_answer(u, &in, &out, &e) != 0)
        rpc_end_of(&how, false, &e);
    else
        grpc_server_call_send(c->grpc, out.bytes == 0 ? "" : out.data, out.bytes);
    end(u->rpc, c->grpc, &how);
    buf_finish(&out);
}

static void half_closed(void *context, void *state) {
    static const struct rpc_end how = {.code = GRPC_STATUS_INVALID_ARGUMENT,
                                       .text = "the call ended without a request"};
    struct unary_call *c = state;
    if (c == NULL || c->answered) return;
    c->answered = true;
    end(((const struct rpc_unary *)context)->rpc, c->grpc, &how);
}

static void closed(void *context, void *state, bool connection_lost) {
    struct rpc *r = ((const struct rpc_unary *)context)->rpc;
    (void)connection_lost;
    atomic_fetch_sub(&r->n_calls, 1);
    mem_free(state);
}

void rpc_unary_register(struct rpc *r) {
    for (size_t i = 0; i < RPC_UNARY_COUNT; i++) {
        struct rpc_unary *u = &r->unary[i];
        *u = methods[i];
        u->rpc = r;
        struct grpc_method method = {.path = u->path,
                                     .while_draining = true,
                                     .first_ns = MESSAGE_WAIT_NS,
                                     .context = u,
                                     .opened = opened,
                                     .message = message,
                                     .half_closed = half_closed,
                                     .closed = closed};
        grpc_server_host_register(r->host, &method);
    }
}
