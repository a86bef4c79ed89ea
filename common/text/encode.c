// encode.c: text to ids: repair UTF-8, find added tokens, normalise, find those of the normalised
// text, split, merge.
//
// After tokenizer_file.c in the walk, before the scheduler. Text comes in runs, trusted or not
// (chat.h); all of it is one text for the normaliser and the splitter, as when a rendered prompt is
// encoded as a whole. Never reads the model's files.
#include <string.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/text/bpe.h"
#include "common/text/chat.h"
#include "common/text/nfc.h"
#include "common/text/tokenizer_parts.h"
#include "common/text/utf8.h"

// Runs cover a text in order; neighbours differ in trust.
struct run {
    size_t end;
    bool trusted;
};

struct runs {
    struct run *list;
    size_t n;
};

struct encoder {
    const struct tokenizer *tokenizer;
    struct split_work split;
    struct bpe bpe;
    struct buf normal; // the gap at hand, normalised
    struct runs normal_runs;
    struct id_list *out;
    size_t ids_max;
    struct err_text *e;
};

// A part of a text between two added tokens. The runs are those of the whole text.
struct segment {
    const char *text;
    size_t begin, end;
    struct runs runs;
};

void id_list_finish(struct id_list *l) {
    mem_free(l->ids);
    *l = (struct id_list){0};
}

static int too_large(const struct encoder *x) {
    return err_set(x->e, ERR_REQ_TOO_LARGE, "the text has more than %zu tokens", x->ids_max);
}

static int no_memory(const struct encoder *x) {
    return err_set(x->e, ERR_FATAL_NOMEM, "no memory to encode the text");
}

static int append_id(struct encoder *x, uint32_t id) {
    struct id_list *out = x->out;
    if (out->n >= x->ids_max) return too_large(x);
    if (out->n == out->capacity) {
        size_t capacity = out->capacity < 64 ? 64 : 2 * out->capacity;
        uint32_t *ids = mem_resize(out->ids, capacity * sizeof *ids);
        if (ids == NULL) return no_memory(x);
        out->ids = ids;
        out->capacity = capacity;
    }
    out->ids[out->n++] = id;
    return 0;
}

// --- pieces to ids

static int encode_piece(struct encoder *x, const char *piece, size_t n) {
    const struct vocab *v = &x->tokenizer->vocab;
    if (n == 1) return append_id(x, v->byte_ids[(unsigned char)piece[0]]);
    if (x->tokenizer->ignore_merges) {
        uint32_t id = vocab_id(v, piece, n, true);
        if (id != ID_NONE) return append_id(x, id);
    }
    // No id stands for more bytes than the longest token: a hopeless piece is refused before the
    // work.
    if ((n - 1) / v->token_bytes_max >= x->ids_max - x->out->n) return too_large(x);
    if (bpe_run(&x->bpe, piece, n) != 0) return no_memory(x);
    for (uint32_t i = 0; i != ID_NONE; i = x->bpe.symbols[i].next) {
        int rc = append_id(x, x->bpe.symbols[i].id);
        if (rc != 0) return rc;
    }
    return 0;
}

static int encode_ordinary(struct encoder *x, const char *text, size_t n) {
    if (n >= INT32_MAX) return too_large(x);
    int rc = split_run(&x->split, text, n, x->e);
    if (rc == ERR_FATAL_NOMEM) return no_memory(x);
    size_t begin = 0;
    for (size_t i = 0; i < x->split.cuts.n && rc == 0; i++) {
        rc = encode_piece(x, text + begin, x->split.cuts.ends[i] - begin);
        begin = x->split.cuts.ends[i];
    }
    return rc;
}

// --- added tokens

// Walks positions of a segment and knows how far the text around them is trusted.
struct trust_cursor {
    struct runs runs;
    size_t index;
};

// Where the trusted run around at ends; at itself when at is not trusted. at never goes back.
static size_t trusted_end(struct trust_cursor *c, size_t at) {
    while (c->index < c->runs.n && c->runs.list[c->index].end <= at)
        c->index++;
    check(c->index < c->runs.n);
    const struct run *run = &c->runs.list[c->index];
    return run->trusted ? run->end : at;
}

// The first added token of set at or after at; *begin is where. NULL when there is none before the
// segment's end.
static const struct added_token *next_added(const struct added_set *set, const struct segment *s,
                                            struct trust_cursor *trust, size_t *begin) {
    for (size_t at = *begin; at < s->end && set->n > 0; at++) {
        unsigned char byte = (unsigned char)s->text[at];
        if (set->first[byte] == set->first[byte + 1]) continue;
        struct added_range range = {.at = at, .trusted_end = trusted_end(trust, at), .n = s->end};
        const struct added_token *token = added_set_match(set, s->text, range);
        if (token == NULL) continue;
        *begin = at;
        return token;
    }
    return NULL;
}

typedef int gap_encoder(struct encoder *x, const struct segment *gap);

// Emits the set's tokens in the segment and hands what lies between to gap.
static int scan(struct encoder *x, const struct added_set *set, const struct segment *s,
                gap_encoder *gap) {
    struct trust_cursor trust = {.runs = s->runs};
    struct segment rest = *s;
    while (rest.begin < s->end) {
        size_t begin = rest.begin;
        const struct added_token *token = next_added(set, s, &trust, &begin);
        rest.end = token == NULL ? s->end : begin;
        int rc = rest.begin < rest.end ? gap(x, &rest) : 0;
        if (rc == 0 && token != NULL) rc = append_id(x, token->id);
        if (rc != 0) return rc;
        rest.begin = token == NULL ? s->end : begin + token->n_bytes;
    }
    return 0;
}

static int encode_gap(struct encoder *x, const struct segment *gap) {
    return encode_ordinary(x, gap->text + gap->begin, gap->end - gap->begin);
}

// --- normalising

// Moves a boundary between two runs to where the text may be normalised part by part: before a
// character that combines with nothing on its left. Characters in between count as not trusted.
static size_t safe_boundary(const struct segment *s, size_t at, bool forward) {
    while (at > s->begin && at < s->end) {
        bool plain = (unsigned char)s->text[at] < 0xcc && utf8_is_start(s->text[at]);
        if (plain) break;
        if (forward)
            at++;
        else
            at--;
    }
    return at;
}

// The normal form of a segment goes to x->normal, its runs to x->normal_runs.
static int normalize(struct encoder *x, const struct segment *s, struct segment *out) {
    struct runs *runs = &x->normal_runs;
    runs->n = 0;
    buf_reset(&x->normal);
    size_t begin = s->begin;
    for (size_t i = 0; i < s->runs.n && begin < s->end; i++) {
        struct run run = s->runs.list[i];
        if (run.end <= begin) continue;
        size_t end = run.end >= s->end ? s->end : safe_boundary(s, run.end, !run.trusted);
        if (end <= begin) continue;
        if (nfc_append(&x->normal, s->text + begin, end - begin) != 0) return no_memory(x);
        runs->list[runs->n++] = (struct run){.end = x->normal.bytes, .trusted = run.trusted};
        begin = end;
    }
    check(begin == s->end);
    *out = (struct segment){.text = x->normal.data, .end = x->normal.bytes, .runs = *runs};
    return 0;
}

static int encode_raw_gap(struct encoder *x, const struct segment *gap) {
    struct segment normal = *gap;
    if (x->tokenizer->nfc && !nfc_is_plain(gap->text + gap->begin, gap->end - gap->begin)) {
        int rc = normalize(x, gap, &normal);
        if (rc != 0) return rc;
    }
    return scan(x, &x->tokenizer->normalized, &normal, encode_gap);
}

// --- the text as it came

// One run a stretch of equal trust, with ends mapped to the repaired text in to.
static int repair(struct buf *to, const char *text, size_t n, struct runs *runs) {
    size_t i = 0;
    for (size_t r = 0; r < runs->n; r++) {
        while (i < runs->list[r].end) {
            struct utf8_unit unit = utf8_next(text + i, n - i);
            const char *from = unit.valid ? text + i : UTF8_REPLACEMENT;
            buf_add(to, from, unit.valid ? unit.bytes : 3);
            i += unit.bytes;
        }
        runs->list[r].end = to->bytes;
    }
    return to->failed ? ERR_FATAL_NOMEM : 0;
}

static void merge_runs(const struct chat_span *spans, size_t n_spans, struct runs *out) {
    size_t at = 0;
    for (size_t i = 0; i < n_spans; i++) {
        check(spans[i].begin == at && spans[i].end >= at);
        at = spans[i].end;
        if (spans[i].begin == at) continue;
        bool same = out->n > 0 && out->list[out->n - 1].trusted == spans[i].trusted;
        if (same)
            out->list[out->n - 1].end = at;
        else
            out->list[out->n++] = (struct run){.end = at, .trusted = spans[i].trusted};
    }
}

static int encoder_run(struct encoder *x, const char *text, size_t n, struct runs *runs) {
    struct buf repaired = {0};
    struct segment whole = {.text = text, .end = n, .runs = *runs};
    int rc = 0;
    if (!utf8_valid(text, n)) {
        if (repair(&repaired, text, n, runs) != 0) rc = no_memory(x);
        whole = (struct segment){.text = repaired.data, .end = repaired.bytes, .runs = *runs};
    }
    if (rc == 0) rc = scan(x, &x->tokenizer->raw, &whole, encode_raw_gap);
    buf_finish(&repaired);
    return rc;
}

int tokenizer_encode_spans(const struct tokenizer *t, const struct chat_output *prompt,
                           size_t ids_max, struct id_list *out, struct err_text *e) {
    struct encoder x = {.tokenizer = t, .out = out, .ids_max = ids_max, .e = e};
    if (out->n > ids_max) return too_large(&x);
    if (prompt->bytes == 0) return 0;
    size_t n_before = out->n;
    struct runs runs = {.list = mem_array(prompt->n_spans, sizeof(struct run))};
    x.normal_runs.list = mem_array(prompt->n_spans, sizeof(struct run));
    bpe_init(&x.bpe, &t->vocab);
    int rc = split_work_init(&x.split, &t->splitter);
    if (rc != 0 || runs.list == NULL || x.normal_runs.list == NULL) {
        rc = no_memory(&x);
    } else {
        merge_runs(prompt->spans, prompt->n_spans, &runs);
        check(runs.n > 0 && runs.list[runs.n - 1].end == prompt->bytes);
        rc = encoder_run(&x, prompt->text, prompt->bytes, &runs);
    }
    if (rc != 0) out->n = n_before;
    split_work_finish(&x.split);
    bpe_finish(&x.bpe);
    buf_finish(&x.normal);
    mem_free(x.normal_runs.list);
    mem_free(runs.list);
    return rc;
}

int tokenizer_encode(const struct tokenizer *t, const struct encode_text *text, struct id_list *out,
                     struct err_text *e) {
    struct chat_span span = {.end = text->bytes, .trusted = text->parse_special};
    struct chat_output whole = {.bytes = text->bytes, .spans = &span, .n_spans = 1};
    memcpy(&whole.text, &text->text, sizeof whole.text); // encode_spans only reads it
    return tokenizer_encode_spans(t, &whole, text->ids_max, out, e);
}
