// stage.c: see stage.h. In the walk it stands in place of the embedding, and of the head.
#include "worker/stage.h"

#include "worker/forward.h"

size_t stage_bytes_max(const struct model_spec *spec, uint32_t rows_max) {
    return sizeof(struct rows_head) + (size_t)rows_max * spec_stream_dim(spec) * sizeof(float);
}

static int64_t deadline_of(const struct forward *f) {
    return env_now_ns(f->config.env) + f->config.exchange_timeout_ns;
}

static int take_rows(struct forward *f, const struct fabric_msg *message, struct err_text *e) {
    const struct rows_rules rules = {f->n_own, spec_stream_dim(f->spec)};
    struct fabric_piece first = fabric_pieces(message);
    struct rows_shape shape;
    struct err_text why;
    if (rows_parse(&shape, &first, &rules, &why) != 0)
        return err_set(e, ERR_PEER_PROTOCOL, "stage %u from rank %u: %s", f->place.stage,
                       message->peer, why.text);
    rows_copy(f->x, &first, &shape);
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
    struct rows_head *head = &f->stage.head;
    size_t row_bytes = spec_stream_dim(f->spec) * sizeof(float);
    if (f->n_own == 0) return 0;
    *head = (struct rows_head){.n_rows = f->n_own, .hidden = spec_stream_dim(f->spec)};
    uint64_t tag = fabric_tag(FABRIC_STAGE, f->step, f->first_layer + f->n_layers);
    struct fabric_part part = {.head = head,
                               .head_bytes = sizeof *head,
                               .data = f->x,
                               .data_bytes = f->n_own * row_bytes,
                               .unit_bytes = row_bytes};
    uint32_t to = f->rank + f->stage_ranks;
    int rc = fabric_send(f->config.fabric, to, tag, &part);
    if (rc == 0) return 0;
    return err_set(e, rc, "stage %u to rank %u: %s", f->place.stage + 1, to, err_name(rc));
}
