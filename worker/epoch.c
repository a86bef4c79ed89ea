// epoch.c: see epoch.h.
#include "worker/epoch.h"

#include <inttypes.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"

// Bounds of one exchange of a model without stages (an all-to-all, or one of a TP group) and of the
// way out of what a step sends last (its result, its rows to the next stage). With pp stages each,
// and the wait for the stage before, has pp times as long: a stage takes rows when its own step is
// over. Only a backstop: a lost peer is noticed by the fabric or told by the leader within seconds,
// while a peer that reads its pages from swap is slow, not lost.
#define EXCHANGE_TIMEOUT_NS (30 * NS_PER_S)
#define SEND_TIMEOUT_NS (30 * NS_PER_S)

int epoch_form(struct epoch *ep, struct fabric *fabric, const Moesaic__Control__V1__Form *form,
               struct err_text *e) {
    *ep = (struct epoch){.number = form->epoch,
                         .nonce = form->nonce,
                         .kv_blocks = form->kv_blocks,
                         .n_snapshots = form->snapshots,
                         .host_index = form->host_index,
                         .n_on_host = form->n_on_host};
    ep->address_bytes = sizeof ep->address;
    return fabric_begin(fabric, ep->address, &ep->address_bytes, e);
}

static int check_addresses(const struct epoch *ep, const struct epoch_parts *parts,
                           const Moesaic__Control__V1__Connect *connect, struct err_text *e) {
    uint32_t n_peers = parts->layout->n_ranks + 1;
    if (connect->n_addresses != n_peers)
        return err_set(e, ERR_PEER_PROTOCOL, "connect has %zu addresses, not %u",
                       connect->n_addresses, n_peers);
    const ProtobufCBinaryData *own = &connect->addresses[parts->rank];
    if (own->len != ep->address_bytes || memcmp(own->data, ep->address, own->len) != 0)
        return err_set(e, ERR_PEER_PROTOCOL,
                       "connect.addresses[%u] is not the one that this rank sent", parts->rank);
    return 0;
}

static int connect_fabric(const struct epoch *ep, const struct epoch_parts *parts,
                          const Moesaic__Control__V1__Connect *connect, struct err_text *e) {
    const uint8_t **addresses = mem_array(connect->n_addresses, sizeof *addresses);
    size_t *bytes = mem_array(connect->n_addresses, sizeof *bytes);
    int rc = addresses == NULL || bytes == NULL
                 ? err_set(e, ERR_FATAL_NOMEM, "no memory for the peers' addresses")
                 : 0;
    for (size_t i = 0; rc == 0 && i < connect->n_addresses; i++) {
        addresses[i] = connect->addresses[i].data;
        bytes[i] = connect->addresses[i].len;
    }
    struct fabric_group group = {.epoch = ep->number,
                                 .nonce = ep->nonce,
                                 .self = parts->rank,
                                 .n_peers = (uint32_t)connect->n_addresses,
                                 .addresses = addresses,
                                 .address_bytes = bytes};
    if (rc == 0) rc = fabric_connect(parts->fabric, &group, e);
    mem_free(addresses);
    mem_free(bytes);
    return rc;
}

static int create_model(struct epoch *ep, const struct epoch_parts *parts, struct err_text *e) {
    struct model_config config = {
        .env = parts->env,
        .weights = parts->weights,
        .layout = parts->layout,
        .ops = parts->ops,
        .pool = parts->pool,
        .fabric = parts->fabric,
        .rank = parts->rank,
        .n_slots = parts->n_slots,
        .rows_max = parts->rows_max,
        .max_model_len = parts->max_model_len,
        .kv_blocks = ep->kv_blocks,
        .n_snapshots = ep->n_snapshots,
        .kv_dtype = parts->kv_dtype,
        .store = parts->store,
        .digest = parts->digest,
        // Whoever waits for a rank of its stage may wait for the stages before, too.
        .exchange_timeout_ns = EXCHANGE_TIMEOUT_NS * parts->layout->pp,
    };
    return model_create(&ep->model, &config, e);
}

int epoch_connect(struct epoch *ep, const struct epoch_parts *parts,
                  const Moesaic__Control__V1__Connect *connect, struct err_text *e) {
    int rc = check_addresses(ep, parts, connect, e);
    if (rc == 0) rc = connect_fabric(ep, parts, connect, e);
    if (rc == 0) rc = create_model(ep, parts, e);
    if (rc != 0) return rc;
    struct step_config config = {
        .env = parts->env,
        .fabric = parts->fabric,
        .model = ep->model,
        .epoch = ep->number,
        .rank = parts->rank,
        .n_ranks = parts->layout->n_ranks,
        .n_slots = parts->n_slots,
        .rows_max = parts->rows_max,
        .kv_blocks = ep->kv_blocks,
        .send_timeout_ns = SEND_TIMEOUT_NS * parts->layout->pp,
    };
    return step_create(&ep->step, &config, e);
}

// What the exchanges of an epoch cost, beside the rows that they were for.
static void log_traffic(const struct epoch *ep, const struct fabric *fabric) {
    static const char *const names[FABRIC_KINDS] = {
        [FABRIC_DISPATCH] = "dispatch", [FABRIC_COMBINE] = "combine", [FABRIC_STAGE] = "stage",
        [FABRIC_GATHER] = "gather",     [FABRIC_REDUCE] = "reduce",   [FABRIC_HEADS] = "heads",
        [FABRIC_LOGITS] = "logits",     [FABRIC_TOKENS] = "tokens"};
    uint64_t steps = ep->step != NULL ? step_count(ep->step) : 0;
    for (uint32_t kind = 0; steps > 0 && kind < FABRIC_KINDS; kind++) {
        struct fabric_traffic t = fabric_sent(fabric, kind);
        if (names[kind] == NULL || t.messages == 0) continue;
        log_event(LOG_DEBUG, "worker", "sent", log_uint("epoch", ep->number),
                  log_text("kind", names[kind]), log_uint("steps", steps),
                  log_uint("messages", t.messages), log_uint("bytes", t.bytes),
                  log_uint("messages_with_rows", t.data_messages),
                  log_uint("row_bytes", t.data_bytes));
    }
}

void epoch_end(struct epoch *ep, struct fabric *fabric) {
    log_traffic(ep, fabric);
    fabric_end(fabric); // first: until then it may read the step's buffer and the model's rows
    step_destroy(ep->step);
    model_destroy(ep->model);
    *ep = (struct epoch){0};
}
