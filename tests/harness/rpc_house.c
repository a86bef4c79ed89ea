// rpc_house.c: see rpc_house.h.
#include "tests/harness/rpc_house.h"

#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"

#define REQUEST_PACKED_MAX 4096

void rpc_house_start(struct rpc_house *h, const struct rpc_house_config *config) {
    struct err_text e = {""};
    struct toy_house_config toy = {config->model, config->script, config->queue_max,
                                   RPC_HOUSE_CONTEXT};
    toy_house_start(&h->toy, &toy);
    struct serving *s = h->toy.serving;
    if (config->prepare != NULL) config->prepare(h);
    ck_assert_int_eq(stream_create(&h->stream, s, &e), 0);
    ck_assert_int_eq(render_create(&h->render, s, h->stream, 2, &e), 0);
    uint64_t bodies = config->bodies_bytes_max;
    struct rpc_config rpc = {.serving = s,
                             .render = h->render,
                             .host = "127.0.0.1",
                             .calls_max = config->calls_max,
                             .bodies_bytes_max = bodies != 0 ? bodies : 1u << 20,
                             .idle_ns = config->idle_ns};
    ck_assert_msg(rpc_start(&h->rpc, &rpc, &h->port, &e) == 0, "%s", e.text);
}

void rpc_house_stop(struct rpc_house *h) {
    rpc_stop(h->rpc);
    render_destroy(h->render);
    toy_engine_stop(h->toy.toy);
    stream_destroy(h->stream);
    rpc_destroy(h->rpc);
    toy_house_stop(&h->toy);
}

// --- asking

struct rpc_client *rpc_house_ask(struct rpc_house *h, const Moesaic__V1__GenerateRequest *request,
                                 bool small_window) {
    static _Atomic uint32_t n_asked;
    struct rpc_client *c = rpc_client_open(h->port, RPC_HOUSE_GENERATE, small_window);
    uint8_t packed[REQUEST_PACKED_MAX];
    char id[32];
    Moesaic__V1__GenerateRequest m = MOESAIC__V1__GENERATE_REQUEST__INIT;
    if (request != NULL) m = *request;
    snprintf(id, sizeof id, "mine-%u", atomic_fetch_add(&n_asked, 1));
    if (m.text[0] == '\0' && m.n_messages == 0) m.text = (char *)"hello";
    if (m.request_id[0] == '\0') m.request_id = id;
    check(moesaic__v1__generate_request__get_packed_size(&m) <= sizeof packed);
    rpc_client_send(c, packed, moesaic__v1__generate_request__pack(&m, packed));
    rpc_client_half_close(c);
    return c;
}

// --- hearing

static void hear_message(struct rpc_heard *h, const Moesaic__V1__GenerateResponse *m) {
    ck_assert_uint_lt(m->index, RPC_HEARD_CHOICES_MAX);
    struct rpc_heard_choice *k = &h->choices[m->index];
    ck_assert_uint_eq(k->n_finishes, 0); // nothing after the end
    ck_assert_ptr_nonnull(strstr(m->request_id, "mine"));
    h->n_messages++;
    k->n_ids += (uint32_t)m->n_token_ids;
    k->n_logprobs += (uint32_t)m->n_logprobs;
    k->n_finishes += m->finish_reason[0] != '\0';
    snprintf(k->finish, sizeof k->finish, "%s", m->finish_reason);
    snprintf(k->stop_reason, sizeof k->stop_reason, "%s", m->stop_reason);
    ck_assert(m->n_logprobs == 0 || m->n_logprobs == m->n_token_ids);
    ck_assert_uint_eq(m->completion_tokens, k->n_ids);
    if (m->n_token_ids != 0) k->last_id = m->token_ids[m->n_token_ids - 1];
    if (m->n_logprobs != 0) k->last_logprob = m->logprobs[m->n_logprobs - 1]->logprob;
    for (size_t i = 0; i < m->n_logprobs; i++)
        k->n_top += (uint32_t)m->logprobs[i]->n_top;
    buf_text(&k->text, m->text);
}

bool rpc_house_hear_next(struct rpc_heard *h, struct rpc_client *c) {
    struct buf bytes;
    buf_init(&bytes, 0);
    bool heard = rpc_client_read(c, &bytes);
    if (heard) {
        const uint8_t *data = (const uint8_t *)bytes.data;
        Moesaic__V1__GenerateResponse *m =
            moesaic__v1__generate_response__unpack(NULL, bytes.bytes, data);
        ck_assert_ptr_nonnull(m);
        hear_message(h, m);
        moesaic__v1__generate_response__free_unpacked(m, NULL);
    }
    buf_finish(&bytes);
    return heard;
}

void rpc_house_hear_rest(struct rpc_heard *h, struct rpc_client *c) {
    while (rpc_house_hear_next(h, c))
        continue;
    for (size_t i = 0; i < RPC_HEARD_CHOICES_MAX; i++)
        buf_add(&h->choices[i].text, "", 1);
    h->code = rpc_client_status(c, h->status, sizeof h->status);
    if (!rpc_client_trailer(c, "grpc-retry-pushback-ms", h->pushback)) h->pushback[0] = '\0';
    rpc_client_close(c);
}

void rpc_house_hear(struct rpc_heard *h, struct rpc_client *c) {
    *h = (struct rpc_heard){0};
    rpc_house_hear_rest(h, c);
}

void rpc_heard_finish(struct rpc_heard *h) {
    for (size_t i = 0; i < RPC_HEARD_CHOICES_MAX; i++)
        buf_finish(&h->choices[i].text);
}

void rpc_house_expect(struct rpc_client *c, int code, const char *text) {
    struct rpc_heard h;
    rpc_house_hear(&h, c);
    ck_assert_msg(h.code == code, "status %d %s", h.code, h.status);
    ck_assert_msg(strstr(h.status, text) != NULL, "%s", h.status);
    rpc_heard_finish(&h);
}

int rpc_house_call(struct rpc_house *h, const char *path, const ProtobufCMessage *request,
                   struct buf *out, char text[ERR_TEXT_MAX]) {
    struct rpc_client *c = rpc_client_open(h->port, path, false);
    size_t bytes = protobuf_c_message_get_packed_size(request);
    uint8_t *packed = mem_alloc(bytes);
    ck_assert_ptr_nonnull(packed);
    protobuf_c_message_pack(request, packed);
    rpc_client_send(c, packed, bytes);
    rpc_client_half_close(c);
    rpc_client_read(c, out);
    int code = rpc_client_status(c, text, ERR_TEXT_MAX);
    mem_free(packed);
    rpc_client_close(c);
    return code;
}
