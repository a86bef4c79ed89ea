// rpc_abort.c: see rpc_abort.h.
#include "leader/rpc_abort.h"

#include <string.h>
#include <xxhash.h>

#include "common/base/check.h"
#include "generate.pb-c.h"
#include "leader/rpc_call.h"
#include "leader/rpc_unary.h"

// --- names

static struct rpc_call **bucket_of(struct rpc_names *n, const char *id) {
    return &n->buckets[XXH3_64bits(id, strlen(id)) % RPC_NAME_BUCKETS];
}

static struct rpc_call *look(struct rpc_names *n, int32_t key, const char *id) {
    struct rpc_call *c = *bucket_of(n, id);
    while (c != NULL && (c->key != key || strcmp(c->request_id, id) != 0))
        c = c->next_name;
    return c;
}

void rpc_names_init(struct rpc_names *n) {
    check(pthread_mutex_init(&n->lock, NULL) == 0);
}

void rpc_names_finish(struct rpc_names *n) {
    for (size_t i = 0; i < RPC_NAME_BUCKETS; i++)
        check(n->buckets[i] == NULL);
    pthread_mutex_destroy(&n->lock);
}

bool rpc_names_add(struct rpc_names *n, struct rpc_call *c) {
    pthread_mutex_lock(&n->lock);
    struct rpc_call **bucket = bucket_of(n, c->request_id);
    bool is_new = look(n, c->key, c->request_id) == NULL;
    if (is_new) {
        c->next_name = *bucket;
        *bucket = c;
    }
    pthread_mutex_unlock(&n->lock);
    return is_new;
}

void rpc_names_remove(struct rpc_names *n, struct rpc_call *c) {
    pthread_mutex_lock(&n->lock);
    struct rpc_call **place = bucket_of(n, c->request_id);
    while (*place != c)
        place = &(*place)->next_name;
    *place = c->next_name;
    pthread_mutex_unlock(&n->lock);
}

struct rpc_call *rpc_names_find(struct rpc_names *n, int32_t key, const char *id) {
    pthread_mutex_lock(&n->lock);
    struct rpc_call *c = look(n, key, id);
    if (c != NULL) rpc_call_hold(c); // gRPC's reference is there for as long as it has its name
    pthread_mutex_unlock(&n->lock);
    return c;
}

// --- Abort

typedef Moesaic__V1__AbortRequest Message;

// A string of C ends at a zero byte, one of protobuf does not. A message of lawful ids has none
// anywhere.
static int check_ids(const Message *m, const struct rpc_message *message, struct api_error *e) {
    if (message->bytes != 0 && memchr(message->data, 0, message->bytes) != NULL)
        return api_error_set(e, 400, "request_ids", "'request_ids' must not have zero bytes.");
    if (m->n_request_ids == 0 || m->n_request_ids > RPC_ABORT_IDS_MAX)
        return api_error_set(e, 400, "request_ids", "'request_ids' must have 1 to %d ids.",
                             RPC_ABORT_IDS_MAX);
    for (size_t i = 0; i < m->n_request_ids; i++) {
        if (!client_id_ok(m->request_ids[i]))
            return api_error_set(e, 400, "request_ids",
                                 "'request_ids[%zu]' must be 1 to %d printable ASCII characters "
                                 "without spaces.",
                                 i, REQUEST_ID_BYTES_MAX);
    }
    return 0;
}

static uint32_t abort_all(struct rpc *r, const Message *m, int32_t key) {
    uint32_t n = 0;
    for (size_t i = 0; i < m->n_request_ids; i++) {
        struct rpc_call *c = rpc_names_find(&r->names, key, m->request_ids[i]);
        if (c == NULL) continue;
        n += rpc_call_abort(c);
        rpc_call_release(c);
    }
    return n;
}

int rpc_abort(struct rpc *r, const struct rpc_message *message, struct buf *out,
              struct api_error *e) {
    Moesaic__V1__AbortResponse answer = MOESAIC__V1__ABORT_RESPONSE__INIT;
    struct rpc_unpacked u;
    int rc = rpc_unpack(&u, &moesaic__v1__abort_request__descriptor, message, e);
    const Message *m = (const Message *)u.message;
    if (rc == 0) rc = check_ids(m, message, e);
    if (rc == 0) answer.found = abort_all(r, m, message->key);
    rpc_unpacked_finish(&u);
    if (rc == 0) rpc_pack(out, &answer.base);
    return rc;
}
