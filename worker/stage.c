// stage.c: see stage.h. In the walk it stands in place of the embedding, and of the head.
#include "worker/stage.h"

#include <string.h>

#include "common/base/check.h"
#include "worker/forward.h"

size_t stage_bytes_max(const struct model_spec *spec, uint32_t rows_max) {
    return sizeof(struct stage_head) + (size_t)rows_max * spec_stream_dim(spec) * sizeof(float);
}

int stage_parse(const float **rows, const struct stage_rules *rules, const uint8_t *data,
                size_t bytes, struct err_text *e) {
    struct stage_head head;
    if (bytes < sizeof head)
        return err_set(e, ERR_PEER_PROTOCOL, "%zu bytes are less than a head", bytes);
    check((uintptr_t)data % WIRE_ALIGN == 0); // the fabric's promise
    memcpy(&head, data, sizeof head);
    if (head.n_rows != rules->n_rows || head.hidden != rules->hidden)
        return err_set(e, ERR_PEER_PROTOCOL, "n_rows %u and hidden %u instead of %u and %u",
                       head.n_rows, head.hidden, rules->n_rows, rules->hidden);
    uint64_t expected = sizeof head + (uint64_t)head.n_rows * head.hidden * sizeof(float);
    if (bytes != expected)
        return err_set(e, ERR_PEER_PROTOCOL, "%zu bytes instead of %llu", bytes,
                       (unsigned long long)expected);
    *rows = (const float *)(data + sizeof head);
    return 0;
}

static int64_t deadline_of(const struct forward *f) {
    return env_now_ns(f->config.env) + f->config.exchange_timeout_ns;
}

static int take_rows(struct forward *f, const struct fabric_msg *message, struct err_text *e) {
    const struct stage_rules rules = {f->n_own, spec_stream_dim(f->spec)};
    const float *rows;
    struct err_text why;
    if (stage_parse(&rows, &rules, message->data, message->bytes, &why) != 0)
        return err_set(e, ERR_PEER_PROTOCOL, "stage %u from rank %u: %s", f->place.stage,
                       message->peer, why.text);
    memcpy(f->x, rows, (size_t)f->n_own * spec_stream_dim(f->spec) * sizeof(float));
    return 0;
}

int stage_receive(struct forward *f, struct err_text *e) {
    struct fabric_want want = {.peer = f->rank - f->stage_ranks,
                               .kind = FABRIC_STAGE,
                               .step = f->step,
                               .layer = f->first_layer};
    struct fabric_msg message;
    if (f->n_own == 0) return 0;
    int rc = fabric_recv(f->config.fabric, &want, deadline_of(f), &message);
    if (rc != 0)
        return err_set(e, rc, "stage %u from rank %u: %s", f->place.stage, want.peer, err_name(rc));
    rc = take_rows(f, &message, e);
    fabric_release(f->config.fabric, &message);
    return rc;
}

int stage_send(struct forward *f, struct err_text *e) {
    struct fabric *fabric = f->config.fabric;
    struct stage_head *head = &f->stage.head;
    uint32_t to = f->rank + f->stage_ranks;
    if (f->n_own == 0) return 0;
    *head = (struct stage_head){.n_rows = f->n_own, .hidden = spec_stream_dim(f->spec)};
    uint64_t tag = fabric_tag(FABRIC_STAGE, f->step, f->first_layer + f->n_layers);
    int rc = fabric_send(fabric, to, tag, head, sizeof *head, f->x,
                         (size_t)f->n_own * spec_stream_dim(f->spec) * sizeof(float));
    if (rc == 0) rc = fabric_flush(fabric, deadline_of(f));
    return rc == 0
               ? 0
               : err_set(e, rc, "stage %u to rank %u: %s", f->place.stage + 1, to, err_name(rc));
}
