// dispatch.c: see dispatch.h. Twin of combine.c.
#include "worker/dispatch.h"

#include <string.h>

#include "common/base/check.h"
#include "worker/forward.h"

static uint32_t smaller(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static size_t wire_align(size_t bytes) {
    return (bytes + WIRE_ALIGN - 1) & ~(size_t)(WIRE_ALIGN - 1);
}

size_t dispatch_head_bytes(uint64_t n_rows, uint64_t n_pairs) {
    return wire_align(sizeof(struct dispatch_head) + (n_rows + n_pairs) * sizeof(uint32_t));
}

// A row is on the wire to at most min(top_k, peers) peers; each head may round up by itself.
size_t dispatch_heads_bytes(uint32_t n_ranks, uint32_t rows_max, uint32_t top_k) {
    size_t n_peers = n_ranks - 1, copies = smaller(top_k, n_ranks - 1);
    size_t words = n_peers == 0 ? 0 : (size_t)rows_max * (copies + top_k);
    return n_peers * (sizeof(struct dispatch_head) + WIRE_ALIGN) + words * sizeof(uint32_t);
}

size_t dispatch_pairs_max(const struct forward *f) {
    return (size_t)f->own_max * smaller(f->spec->router.top_k, f->config.weights->n_local_experts);
}

size_t dispatch_bytes_max(const struct model_spec *spec, uint32_t rows_max) {
    size_t head = dispatch_head_bytes(rows_max, (uint64_t)rows_max * spec->router.top_k);
    return head + (size_t)rows_max * spec->hidden * sizeof(float);
}

void dispatch_lay(struct forward *f, struct scratch *s) {
    struct dispatch *d = &f->dispatch;
    const struct router_spec *router = &f->spec->router;
    size_t rows = f->own_max;
    // A row is on the wire to at most this many peers.
    size_t copies = smaller(router->top_k, f->n_ranks - 1);
    d->owner = scratch_take(s, router->n_experts, sizeof *d->owner);
    d->peers = scratch_take(s, f->n_ranks, sizeof *d->peers);
    d->heads_bytes = dispatch_heads_bytes(f->n_ranks, f->own_max, router->top_k);
    d->heads = scratch_take(s, d->heads_bytes, 1);
    d->sent = scratch_take(s, rows * copies, f->spec->hidden * sizeof(float));
    d->sent_row = scratch_take(s, rows * copies, sizeof *d->sent_row);
    d->pair_index = scratch_take(s, rows * router->top_k, sizeof *d->pair_index);
    d->parts = scratch_take(s, f->n_ranks, sizeof *d->parts);
    d->in = scratch_take(s, f->n_ranks, sizeof *d->in);
    d->pairs = scratch_take(s, f->n_ranks * dispatch_pairs_max(f), sizeof *d->pairs);
    d->pair_begin = scratch_take(s, f->n_ranks + 1, sizeof *d->pair_begin);
    for (uint32_t e = 0; d->owner != NULL && e < router->n_experts; e++)
        d->owner[e] = layout_expert_owner(f->config.layout, router->n_experts, e);
}

// How many rows and pairs go to each rank, and each pair's index there.
static void count_pairs(struct forward *f) {
    struct dispatch *d = &f->dispatch;
    uint32_t top_k = f->spec->router.top_k;
    memset(d->peers, 0, f->n_ranks * sizeof *d->peers);
    for (uint32_t row = 0; row < f->n_own; row++) {
        for (uint32_t j = 0; j < top_k; j++) {
            size_t at = (size_t)row * top_k + j;
            struct dispatch_peer *peer = &d->peers[d->owner[f->route.experts[at]]];
            peer->n_rows += peer->last_row != row + 1;
            peer->last_row = row + 1;
            d->pair_index[at] = peer->n_pairs++;
        }
    }
}

// Heads and rows of all peers lie one after the other.
static void place_heads(struct forward *f) {
    struct dispatch *d = &f->dispatch;
    uint8_t *head = d->heads;
    d->n_sent = 0;
    for (uint32_t r = 0; r < f->n_ranks; r++) {
        struct dispatch_peer *peer = &d->peers[r];
        if (r == f->rank) continue;
        peer->head = head;
        peer->head_bytes = dispatch_head_bytes(peer->n_rows, peer->n_pairs);
        check(peer->head_bytes <= d->heads_bytes - (size_t)(head - d->heads));
        peer->row_counts = (uint32_t *)(head + sizeof(struct dispatch_head));
        peer->experts = peer->row_counts + peer->n_rows;
        peer->first_sent = d->n_sent;
        memset(head, 0, peer->head_bytes);
        struct dispatch_head first = {peer->n_rows, peer->n_pairs, f->spec->hidden,
                                      f->spec->router.top_k};
        memcpy(head, &first, sizeof first);
        head += peer->head_bytes;
        d->n_sent += peer->n_rows;
        peer->n_rows = peer->last_row = 0; // counted again while filling
    }
}

static void fill_heads(struct forward *f) {
    struct dispatch *d = &f->dispatch;
    uint32_t top_k = f->spec->router.top_k;
    for (uint32_t row = 0; row < f->n_own; row++) {
        for (uint32_t j = 0; j < top_k; j++) {
            size_t at = (size_t)row * top_k + j;
            uint32_t expert = f->route.experts[at];
            struct dispatch_peer *peer = &d->peers[d->owner[expert]];
            if (peer->head == NULL) continue; // this rank itself
            if (peer->last_row != row + 1) d->sent_row[peer->first_sent + peer->n_rows++] = row;
            peer->last_row = row + 1;
            peer->row_counts[peer->n_rows - 1]++;
            peer->experts[d->pair_index[at]] = expert;
        }
    }
}

static void copy_rows(void *context, uint32_t row_begin, uint32_t row_end, uint32_t thread) {
    (void)thread;
    struct forward *f = context;
    size_t hidden = f->spec->hidden;
    for (uint32_t i = row_begin; i < row_end; i++)
        memcpy(f->dispatch.sent + i * hidden, f->normed + f->dispatch.sent_row[i] * hidden,
               hidden * sizeof(float));
}

static int exchange_rows(struct forward *f, uint32_t layer, struct err_text *e) {
    struct dispatch *d = &f->dispatch;
    size_t row_bytes = f->spec->hidden * sizeof(float);
    for (uint32_t r = 0; r < f->n_ranks; r++) {
        const struct dispatch_peer *peer = &d->peers[r];
        d->parts[r] = (struct fabric_part){0};
        if (r == f->rank) continue;
        d->parts[r] =
            (struct fabric_part){.head = peer->head,
                                 .head_bytes = peer->head_bytes,
                                 .data = (uint8_t *)d->sent + peer->first_sent * row_bytes,
                                 .data_bytes = peer->n_rows * row_bytes};
    }
    int64_t deadline = env_now_ns(f->config.env) + f->config.exchange_timeout_ns;
    struct fabric_exchange x = {fabric_tag(FABRIC_DISPATCH, f->step, layer), 0, f->n_ranks,
                                d->parts, d->in};
    int rc = fabric_exchange(f->config.fabric, &x, deadline);
    if (rc != 0) return err_set(e, rc, "dispatch of layer %u: %s", layer, err_name(rc));
    d->holding = true;
    return 0;
}

static int check_head(const struct dispatch_rules *rules, const struct dispatch_head *head,
                      size_t bytes, struct err_text *e) {
    if (head->hidden != rules->hidden || head->top_k != rules->top_k)
        return err_set(e, ERR_PEER_PROTOCOL, "hidden %u and top_k %u are not this model's",
                       head->hidden, head->top_k);
    if (head->n_rows > rules->rows_max)
        return err_set(e, ERR_PEER_PROTOCOL, "n_rows %u is above %u", head->n_rows,
                       rules->rows_max);
    if (head->n_pairs > (uint64_t)head->n_rows * smaller(rules->top_k, rules->n_local_experts))
        return err_set(e, ERR_PEER_PROTOCOL, "n_pairs %u are too many for %u rows", head->n_pairs,
                       head->n_rows);
    uint64_t expected = dispatch_head_bytes(head->n_rows, head->n_pairs) +
                        (uint64_t)head->n_rows * rules->hidden * sizeof(float);
    if (bytes != expected)
        return err_set(e, ERR_PEER_PROTOCOL, "%zu bytes instead of %llu", bytes,
                       (unsigned long long)expected);
    return 0;
}

// The experts of one row: on this rank, and none twice.
static int check_experts(const struct dispatch_rules *rules, const uint32_t *experts, uint32_t n,
                         struct err_text *e) {
    for (uint32_t j = 0; j < n; j++) {
        if (experts[j] < rules->first_expert ||
            experts[j] - rules->first_expert >= rules->n_local_experts)
            return err_set(e, ERR_PEER_PROTOCOL, "expert %u is not on this rank", experts[j]);
        for (uint32_t other = 0; other < j; other++) {
            if (experts[other] == experts[j])
                return err_set(e, ERR_PEER_PROTOCOL, "expert %u is wanted twice by one row",
                               experts[j]);
        }
    }
    return 0;
}

int dispatch_parse(struct dispatch_view *out, const struct dispatch_rules *rules,
                   const uint8_t *data, size_t bytes, struct err_text *e) {
    struct dispatch_head head;
    if (bytes < sizeof head)
        return err_set(e, ERR_PEER_PROTOCOL, "%zu bytes are less than a head", bytes);
    check((uintptr_t)data % WIRE_ALIGN == 0); // the fabric's promise
    memcpy(&head, data, sizeof head);
    int rc = check_head(rules, &head, bytes, e);
    if (rc != 0) return rc;
    const uint32_t *row_counts = (const uint32_t *)(data + sizeof head);
    const uint32_t *experts = row_counts + head.n_rows;
    uint32_t n_seen = 0;
    for (uint32_t row = 0; row < head.n_rows; row++) {
        uint32_t n = row_counts[row];
        if (n == 0 || n > rules->top_k || n > head.n_pairs - n_seen)
            return err_set(e, ERR_PEER_PROTOCOL, "row %u has %u experts", row, n);
        rc = check_experts(rules, experts + n_seen, n, e);
        if (rc != 0) return rc;
        n_seen += n;
    }
    if (n_seen != head.n_pairs)
        return err_set(e, ERR_PEER_PROTOCOL, "rows have %u experts, not n_pairs %u", n_seen,
                       head.n_pairs);
    const float *rows = (const float *)(data + dispatch_head_bytes(head.n_rows, head.n_pairs));
    *out = (struct dispatch_view){head.n_rows, head.n_pairs, row_counts, experts, rows};
    return 0;
}

static void list_own_pairs(struct forward *f) {
    struct dispatch *d = &f->dispatch;
    uint32_t top_k = f->spec->router.top_k, first = f->config.weights->first_expert;
    struct pair *pair = d->pairs + d->pair_begin[f->rank];
    for (uint32_t row = 0; row < f->n_own; row++) {
        for (uint32_t j = 0; j < top_k; j++) {
            uint32_t expert = f->route.experts[(size_t)row * top_k + j];
            if (d->owner[expert] != f->rank) continue;
            *pair++ = (struct pair){f->normed + (size_t)row * f->spec->hidden, expert - first};
        }
    }
}

static void list_peer_pairs(struct forward *f, const struct dispatch_view *view, uint32_t begin) {
    struct pair *pair = f->dispatch.pairs + begin;
    const uint32_t *expert = view->experts;
    for (uint32_t row = 0; row < view->n_rows; row++) {
        for (uint32_t j = 0; j < view->row_counts[row]; j++)
            *pair++ = (struct pair){view->rows + (size_t)row * f->spec->hidden,
                                    *expert++ - f->config.weights->first_expert};
    }
}

static int list_pairs(struct forward *f, uint32_t layer, struct err_text *e) {
    struct dispatch *d = &f->dispatch;
    const struct weights *w = f->config.weights;
    struct dispatch_rules rules = {f->spec->hidden, f->spec->router.top_k, f->own_max,
                                   w->first_expert, w->n_local_experts};
    d->pair_begin[0] = 0;
    for (uint32_t r = 0; r < f->n_ranks; r++) {
        struct dispatch_view view = {.n_pairs = d->peers[r].n_pairs};
        struct err_text why;
        if (r == f->rank)
            list_own_pairs(f);
        else if (dispatch_parse(&view, &rules, d->in[r].data, d->in[r].bytes, &why) != 0)
            return err_set(e, ERR_PEER_PROTOCOL, "dispatch of layer %u from rank %u: %s", layer, r,
                           why.text);
        else
            list_peer_pairs(f, &view, d->pair_begin[r]);
        d->pair_begin[r + 1] = d->pair_begin[r] + view.n_pairs;
    }
    return 0;
}

int dispatch_rows(struct forward *f, uint32_t layer, struct err_text *e) {
    count_pairs(f);
    if (f->n_ranks > 1) {
        place_heads(f);
        fill_heads(f);
        pool_run_rows(f->pool, f->dispatch.n_sent, f->spec->hidden, copy_rows, f);
        int rc = exchange_rows(f, layer, e);
        if (rc != 0) return rc;
    }
    return list_pairs(f, layer, e);
}

void dispatch_release(struct forward *f) {
    struct dispatch *d = &f->dispatch;
    if (!d->holding) return;
    for (uint32_t r = 0; r < f->n_ranks; r++) {
        if (r != f->rank) fabric_release(f->config.fabric, &d->in[r]);
    }
    d->holding = false;
}
