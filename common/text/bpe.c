// bpe.c: a linked list of symbols, and the merges that could be done: a binary heap, or lists by
// rank.
#include "common/text/bpe.h"

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/text/utf8.h"

void bpe_init(struct bpe *b, const struct vocab *v) {
    *b = (struct bpe){.vocab = v};
}

void bpe_finish(struct bpe *b) {
    mem_free(b->symbols);
    mem_free(b->heap);
    bpe_buckets_finish(&b->buckets);
    *b = (struct bpe){0};
}

// Each of the n - 1 first pairs is one candidate, and each of at most n - 1 merges adds two while
// it removes at least one.
static int reserve(struct bpe *b, size_t n) {
    const struct vocab *v = b->vocab;
    if (b->symbols_capacity < n) {
        size_t capacity = n < 64 ? 64 : n;
        struct bpe_symbol *symbols = mem_resize(b->symbols, capacity * sizeof *symbols);
        if (symbols == NULL) return ERR_FATAL_NOMEM;
        b->symbols = symbols;
        b->symbols_capacity = capacity;
    }
    b->in_buckets = n >= BPE_LONG && v->ordered && v->n_ranks / 16 <= n && !b->heap_only;
    if (b->in_buckets) return bpe_buckets_start(&b->buckets, v->n_ranks, n);
    if (b->heap_capacity < 2 * n) {
        size_t capacity = n < 64 ? 128 : 2 * n;
        struct bpe_candidate *heap = mem_resize(b->heap, capacity * sizeof *heap);
        if (heap == NULL) return ERR_FATAL_NOMEM;
        b->heap = heap;
        b->heap_capacity = capacity;
    }
    return 0;
}

static bool comes_before(const struct bpe_candidate *a, const struct bpe_candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->position < b->position;
}

static void sift_up(struct bpe *b, size_t i) {
    struct bpe_candidate c = b->heap[i];
    while (i > 0 && comes_before(&c, &b->heap[(i - 1) / 2])) {
        b->heap[i] = b->heap[(i - 1) / 2];
        i = (i - 1) / 2;
        b->steps++;
    }
    b->heap[i] = c;
}

static void sift_down(struct bpe *b, size_t i) {
    struct bpe_candidate c = b->heap[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= b->n_heap) break;
        if (child + 1 < b->n_heap && comes_before(&b->heap[child + 1], &b->heap[child])) child++;
        if (!comes_before(&b->heap[child], &c)) break;
        b->heap[i] = b->heap[child];
        i = child;
        b->steps++;
    }
    b->heap[i] = c;
}

static struct bpe_candidate pop(struct bpe *b) {
    struct bpe_candidate top = b->heap[0];
    b->heap[0] = b->heap[--b->n_heap];
    if (b->n_heap > 0) sift_down(b, 0);
    b->steps++;
    return top;
}

// Offers the merge of the symbol at position with its right neighbour, if there is one.
static void push(struct bpe *b, uint32_t position) {
    if (position == ID_NONE || b->symbols[position].next == ID_NONE) return;
    const struct bpe_symbol *s = &b->symbols[position];
    const struct merge *m = vocab_merge(b->vocab, s->id, b->symbols[s->next].id);
    if (m == NULL) return;
    if (b->in_buckets) {
        bpe_buckets_add(&b->buckets, m->rank, position);
        return;
    }
    check(b->n_heap < b->heap_capacity);
    b->heap[b->n_heap++] = (struct bpe_candidate){m->rank, position, m->id};
    sift_up(b, b->n_heap - 1);
}

static void apply(struct bpe *b, const struct bpe_candidate *c) {
    struct bpe_symbol *s = &b->symbols[c->position];
    if (s->id == ID_NONE || s->next == ID_NONE) return;
    struct bpe_symbol *right = &b->symbols[s->next];
    // The neighbours may have changed since the offer. What counts is the token that they would
    // form now: Hugging Face compares no more than that, and keeps the old rank.
    const struct merge *m = vocab_merge(b->vocab, s->id, right->id);
    if (m == NULL || m->id != c->id) return;
    s->id = c->id;
    right->id = ID_NONE;
    s->next = right->next;
    if (s->next != ID_NONE) b->symbols[s->next].previous = c->position;
    push(b, s->previous);
    push(b, c->position);
}

// --- a piece's first symbols

static void add_symbol(struct bpe *b, uint32_t id) {
    size_t i = b->n_symbols++;
    check(i < b->symbols_capacity);
    b->symbols[i] = (struct bpe_symbol){
        .id = id, .previous = i == 0 ? ID_NONE : (uint32_t)i - 1, .next = (uint32_t)i + 1};
}

// Unknown characters, not yet written: they may be one with the next.
struct unknown {
    bool waits;
};

static void flush_unknown(struct bpe *b, struct unknown *u) {
    if (u->waits) add_symbol(b, b->vocab->unk_id);
    u->waits = false;
}

static bool add_bytes(struct bpe *b, const char *bytes, size_t n) {
    const struct vocab *v = b->vocab;
    for (size_t i = 0; i < n; i++) {
        if (v->byte_ids[(unsigned char)bytes[i]] == ID_NONE) return false;
    }
    for (size_t i = 0; i < n; i++)
        add_symbol(b, v->byte_ids[(unsigned char)bytes[i]]);
    return true;
}

static void add_character(struct bpe *b, const char *bytes, size_t n, struct unknown *u) {
    const struct vocab *v = b->vocab;
    uint32_t id = vocab_id(v, bytes, n, true);
    if (id != ID_NONE && !v->tokens[id].only_mark) {
        flush_unknown(b, u);
        add_symbol(b, id);
        return;
    }
    // An unknown that waits stays behind these bytes, as in Hugging Face.
    if (v->byte_fallback && add_bytes(b, bytes, n)) return;
    if (!v->fuse_unk) flush_unknown(b, u);
    u->waits = v->unk_id != ID_NONE;
}

static void add_characters(struct bpe *b, const char *piece, size_t n) {
    struct unknown u = {false};
    for (size_t i = 0; i < n;) {
        size_t end = i + 1;
        while (end < n && !utf8_is_start(piece[end]))
            end++;
        add_character(b, piece + i, end - i, &u);
        i = end;
    }
    flush_unknown(b, &u);
}

static void run_heap(struct bpe *b) {
    while (b->n_heap > 0) {
        struct bpe_candidate top = pop(b);
        apply(b, &top);
    }
}

static int run_buckets(struct bpe *b) {
    const uint32_t *positions;
    size_t n;
    for (uint32_t rank = 0; rank < b->vocab->n_ranks; rank++) {
        int rc = bpe_buckets_take(&b->buckets, rank, &positions, &n);
        if (rc != 0) return rc;
        b->steps += n;
        for (size_t i = 0; i < n; i++) {
            struct bpe_candidate c = {rank, positions[i], b->vocab->rank_ids[rank]};
            apply(b, &c);
        }
    }
    return 0;
}

int bpe_run(struct bpe *b, const char *piece, size_t n) {
    check(n >= 1 && n < INT32_MAX);
    int rc = reserve(b, n);
    if (rc != 0) return rc;
    b->n_symbols = b->n_heap = 0;
    if (b->vocab->byte_level) {
        for (size_t i = 0; i < n; i++)
            add_symbol(b, b->vocab->byte_ids[(unsigned char)piece[i]]);
    } else {
        add_characters(b, piece, n);
    }
    check(b->n_symbols > 0);
    b->symbols[b->n_symbols - 1].next = ID_NONE;
    for (uint32_t i = 0; i + 1 < b->n_symbols; i++)
        push(b, i);
    if (b->in_buckets) return run_buckets(b);
    run_heap(b);
    return 0;
}
