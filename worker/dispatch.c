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

// A row goes to at most min(top_k, places) places; each head may round up by itself.
size_t dispatch_heads_bytes(uint32_t n_places, uint32_t rows_max, uint32_t top_k) {
    size_t words = n_places == 0 ? 0 : (size_t)rows_max * (smaller(top_k, n_places) + top_k);
    return n_places * (sizeof(struct dispatch_head) + WIRE_ALIGN) + words * sizeof(uint32_t);
}

// A place is sent to unless it is this rank's alone.
static bool is_sent_to(const struct forward *f, uint32_t place) {
    return place != f->place.ep || f->config.layout->etp > 1;
}

static uint32_t places_sent_to(const struct forward *f) {
    return f->config.layout->etp > 1 ? f->config.layout->ep : f->config.layout->ep - 1;
}

// Pairs of one row that so many experts may get.
static uint32_t pairs_of_row(uint32_t top_k, uint32_t n_local_experts, bool may_repeat) {
    if (may_repeat) return n_local_experts == 0 ? 0 : top_k;
    return smaller(top_k, n_local_experts);
}

size_t dispatch_pairs_max(const struct forward *f) {
    bool may_repeat = false;
    for (uint32_t i = 0; i < f->n_layers; i++)
        may_repeat = may_repeat || spec_layer_hash(f->spec, f->first_layer + i);
    return (size_t)f->own_max *
           pairs_of_row(f->spec->router.top_k, f->config.weights->n_local_experts, may_repeat);
}

size_t dispatch_bytes_max(const struct model_spec *spec, uint32_t rows_max) {
    size_t head = dispatch_head_bytes(rows_max, (uint64_t)rows_max * spec->router.top_k);
    return head + (size_t)rows_max * spec->hidden * sizeof(float);
}

void dispatch_lay(struct forward *f, struct scratch *s) {
    struct dispatch *d = &f->dispatch;
    const struct router_spec *router = &f->spec->router;
    size_t rows = f->own_max, n_ranks = f->stage_ranks;
    // A row goes to at most this many places; the ranks of one are sent the same memory.
    size_t copies = smaller(router->top_k, places_sent_to(f));
    d->owner = scratch_take(s, router->n_experts, sizeof *d->owner);
    d->places = scratch_take(s, f->config.layout->ep, sizeof *d->places);
    d->heads_bytes = dispatch_heads_bytes(places_sent_to(f), f->own_max, router->top_k);
    d->heads = scratch_take(s, d->heads_bytes, 1);
    d->sent = scratch_take(s, rows * copies, f->spec->hidden * sizeof(float));
    d->sent_row = scratch_take(s, rows * copies, sizeof *d->sent_row);
    d->pair_index = scratch_take(s, rows * router->top_k, sizeof *d->pair_index);
    d->parts = scratch_take(s, n_ranks, sizeof *d->parts);
    d->in = scratch_take(s, n_ranks, sizeof *d->in);
    d->rows = scratch_take(s, rows, sizeof *d->rows);
    d->pairs = scratch_take(s, n_ranks * dispatch_pairs_max(f), sizeof *d->pairs);
    d->pair_begin = scratch_take(s, n_ranks + 1, sizeof *d->pair_begin);
    for (uint32_t e = 0; d->owner != NULL && e < router->n_experts; e++)
        d->owner[e] = layout_expert_owner(f->config.layout, router->n_experts, e);
}

// How many rows and pairs go to each place, and each pair's index there.
static void count_pairs(struct forward *f) {
    struct dispatch *d = &f->dispatch;
    uint32_t top_k = f->spec->router.top_k;
    memset(d->places, 0, f->config.layout->ep * sizeof *d->places);
    for (uint32_t row = 0; row < f->n_own; row++) {
        for (uint32_t j = 0; j < top_k; j++) {
            size_t at = (size_t)row * top_k + j;
            struct dispatch_place *place = &d->places[d->owner[f->route.experts[at]]];
            if (place->n_rows == 0) place->first_row = row;
            place->n_rows += place->last_row != row + 1;
            place->last_row = row + 1;
            d->pair_index[at] = place->n_pairs++;
        }
    }
}

// Rows that follow each other in the batch, as they always do where every row goes there, are sent
// from where they are.
static bool is_run(const struct dispatch_place *place) {
    return place->n_rows == 0 || place->last_row - place->first_row == place->n_rows;
}

// Heads of all places lie one after the other, and so do rows that are copied.
static void place_heads(struct forward *f) {
    struct dispatch *d = &f->dispatch;
    uint8_t *head = d->heads;
    size_t hidden = f->spec->hidden;
    d->n_sent = 0;
    for (uint32_t p = 0; p < f->config.layout->ep; p++) {
        struct dispatch_place *place = &d->places[p];
        if (!is_sent_to(f, p)) continue;
        place->head = head;
        place->head_bytes = dispatch_head_bytes(place->n_rows, place->n_pairs);
        check(place->head_bytes <= d->heads_bytes - (size_t)(head - d->heads));
        place->row_counts = (uint32_t *)(head + sizeof(struct dispatch_head));
        place->experts = place->row_counts + place->n_rows;
        place->copied = !is_run(place);
        place->first_sent = d->n_sent;
        place->rows = place->copied ? d->sent + (size_t)d->n_sent * hidden
                                    : f->normed + (size_t)place->first_row * hidden;
        memset(head, 0, place->head_bytes);
        struct dispatch_head first = {place->n_rows, place->n_pairs, f->spec->hidden,
                                      f->spec->router.top_k};
        memcpy(head, &first, sizeof first);
        head += place->head_bytes;
        if (place->copied) d->n_sent += place->n_rows;
        place->n_rows = place->last_row = 0; // counted again while filling
    }
}

static void begin_row(struct dispatch *d, struct dispatch_place *place, uint32_t row) {
    if (place->last_row == row + 1) return;
    place->last_row = row + 1;
    if (place->copied) d->sent_row[place->first_sent + place->n_rows] = row;
    place->n_rows++;
}

static void fill_heads(struct forward *f) {
    struct dispatch *d = &f->dispatch;
    uint32_t top_k = f->spec->router.top_k;
    for (uint32_t row = 0; row < f->n_own; row++) {
        for (uint32_t j = 0; j < top_k; j++) {
            size_t at = (size_t)row * top_k + j;
            uint32_t expert = f->route.experts[at];
            struct dispatch_place *place = &d->places[d->owner[expert]];
            if (place->head == NULL) continue;
            begin_row(d, place, row);
            place->row_counts[place->n_rows - 1]++;
            place->experts[d->pair_index[at]] = expert;
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

static struct fabric_exchange exchange_of(const struct forward *f, uint32_t layer) {
    return (struct fabric_exchange){fabric_tag(FABRIC_DISPATCH, f->step, layer), f->stage_first,
                                    f->stage_ranks, f->dispatch.parts, f->dispatch.in};
}

static int send_rows(struct forward *f, uint32_t layer, struct err_text *e) {
    struct dispatch *d = &f->dispatch;
    size_t row_bytes = f->spec->hidden * sizeof(float);
    for (uint32_t r = 0; r < f->stage_ranks; r++) {
        const struct dispatch_place *place = &d->places[r / f->config.layout->etp];
        d->parts[r] = (struct fabric_part){0};
        if (r == f->self) continue;
        d->parts[r] = (struct fabric_part){.head = place->head,
                                           .head_bytes = place->head_bytes,
                                           .data = place->rows,
                                           .data_bytes = place->n_rows * row_bytes,
                                           .unit_bytes = row_bytes};
    }
    struct fabric_exchange x = exchange_of(f, layer);
    int rc = fabric_exchange_send(f->config.fabric, &x);
    return rc == 0 ? 0 : err_set(e, rc, "dispatch of layer %u: %s", layer, err_name(rc));
}

static int receive_rows(struct forward *f, uint32_t layer, struct err_text *e) {
    struct dispatch *d = &f->dispatch;
    int64_t deadline = env_now_ns(f->config.env) + f->config.exchange_timeout_ns;
    struct fabric_exchange x = exchange_of(f, layer);
    int rc = fabric_exchange_receive(f->config.fabric, &x, deadline);
    if (rc != 0) return err_set(e, rc, "dispatch of layer %u: %s", layer, err_name(rc));
    d->holding = true;
    return 0;
}

static int check_head(const struct dispatch_rules *rules, const struct dispatch_head *head,
                      struct err_text *e) {
    if (head->hidden != rules->hidden || head->top_k != rules->top_k)
        return err_set(e, ERR_PEER_PROTOCOL, "hidden %u and top_k %u are not this model's",
                       head->hidden, head->top_k);
    if (head->n_rows > rules->rows_max)
        return err_set(e, ERR_PEER_PROTOCOL, "n_rows %u is above %u", head->n_rows,
                       rules->rows_max);
    if (head->n_pairs > (uint64_t)head->n_rows *
                            pairs_of_row(rules->top_k, rules->n_local_experts, rules->may_repeat))
        return err_set(e, ERR_PEER_PROTOCOL, "n_pairs %u are too many for %u rows", head->n_pairs,
                       head->n_rows);
    return 0;
}

// The experts of one row: on this rank, and none twice where the router chose.
static int check_experts(const struct dispatch_rules *rules, const uint32_t *experts, uint32_t n,
                         struct err_text *e) {
    for (uint32_t j = 0; j < n; j++) {
        if (experts[j] < rules->first_expert ||
            experts[j] - rules->first_expert >= rules->n_local_experts)
            return err_set(e, ERR_PEER_PROTOCOL, "expert %u is not on this rank", experts[j]);
        for (uint32_t other = 0; other < j && !rules->may_repeat; other++) {
            if (experts[other] == experts[j])
                return err_set(e, ERR_PEER_PROTOCOL, "expert %u is wanted twice by one row",
                               experts[j]);
        }
    }
    return 0;
}

int dispatch_parse(struct dispatch_view *out, const struct dispatch_rules *rules,
                   const struct fabric_piece *first, struct err_text *e) {
    struct dispatch_head head;
    if (first->bytes < sizeof head)
        return err_set(e, ERR_PEER_PROTOCOL, "%zu bytes are less than a head", first->bytes);
    check((uintptr_t)first->data % WIRE_ALIGN == 0); // the fabric's promise
    memcpy(&head, first->data, sizeof head);
    int rc = check_head(rules, &head, e);
    if (rc != 0) return rc;
    struct rows_shape rows = {dispatch_head_bytes(head.n_rows, head.n_pairs),
                              rules->hidden * sizeof(float), head.n_rows};
    rc = rows_check(first, &rows, e);
    if (rc != 0) return rc;
    const uint32_t *row_counts = (const uint32_t *)(first->data + sizeof head);
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
    *out = (struct dispatch_view){head.n_rows, head.n_pairs, row_counts, experts, rows};
    return 0;
}

static void list_own_pairs(struct forward *f) {
    struct dispatch *d = &f->dispatch;
    uint32_t top_k = f->spec->router.top_k, first = f->config.weights->first_expert;
    struct pair *pair = d->pairs + d->pair_begin[f->self];
    for (uint32_t row = 0; row < f->n_own; row++) {
        for (uint32_t j = 0; j < top_k; j++) {
            uint32_t expert = f->route.experts[(size_t)row * top_k + j];
            if (d->owner[expert] != f->place.ep) continue;
            *pair++ = (struct pair){f->normed + (size_t)row * f->spec->hidden, expert - first};
        }
    }
}

static void list_peer_pairs(struct forward *f, const struct dispatch_view *view, uint32_t begin) {
    struct pair *pair = f->dispatch.pairs + begin;
    const uint32_t *expert = view->experts;
    for (uint32_t row = 0; row < view->n_rows; row++) {
        for (uint32_t j = 0; j < view->row_counts[row]; j++)
            *pair++ =
                (struct pair){f->dispatch.rows[row], *expert++ - f->config.weights->first_expert};
    }
}

static int list_message(struct forward *f, const struct dispatch_rules *rules, uint32_t from,
                        struct dispatch_view *view, struct err_text *e) {
    struct dispatch *d = &f->dispatch;
    struct fabric_piece first = fabric_pieces(&d->in[from]);
    int rc = dispatch_parse(view, rules, &first, e);
    if (rc != 0) return rc;
    rows_find(d->rows, &first, &view->rows);
    list_peer_pairs(f, view, d->pair_begin[from]);
    return 0;
}

static int list_pairs(struct forward *f, uint32_t layer, struct err_text *e) {
    struct dispatch *d = &f->dispatch;
    const struct weights *w = f->config.weights;
    const struct dispatch_rules rules = {f->spec->hidden,    f->spec->router.top_k,
                                         f->own_max,         w->first_expert,
                                         w->n_local_experts, spec_layer_hash(f->spec, layer)};
    d->pair_begin[0] = 0;
    for (uint32_t r = 0; r < f->stage_ranks; r++) {
        struct dispatch_view view = {.n_pairs = d->places[f->place.ep].n_pairs};
        struct err_text why;
        if (r == f->self)
            list_own_pairs(f);
        else if (list_message(f, &rules, r, &view, &why) != 0)
            return err_set(e, ERR_PEER_PROTOCOL, "dispatch of layer %u from rank %u: %s", layer,
                           f->stage_first + r, why.text);
        d->pair_begin[r + 1] = d->pair_begin[r] + view.n_pairs;
    }
    return 0;
}

int dispatch_send(struct forward *f, uint32_t layer, struct err_text *e) {
    count_pairs(f);
    if (f->stage_ranks == 1) return 0;
    place_heads(f);
    fill_heads(f);
    pool_run_rows(f->pool, f->dispatch.n_sent, f->spec->hidden, copy_rows, f);
    return send_rows(f, layer, e);
}

int dispatch_receive(struct forward *f, uint32_t layer, struct err_text *e) {
    int rc = f->stage_ranks > 1 ? receive_rows(f, layer, e) : 0;
    return rc == 0 ? list_pairs(f, layer, e) : rc;
}

void dispatch_release(struct forward *f) {
    struct dispatch *d = &f->dispatch;
    if (!d->holding) return;
    for (uint32_t r = 0; r < f->stage_ranks; r++) {
        if (r != f->self) fabric_release(f->config.fabric, &d->in[r]);
    }
    d->holding = false;
}
