// encode.c: text to ids: repair UTF-8, find added tokens, normalise, find those of the normalised
// text, set spaces, split, merge.
//
// After tokenizer_file.c in the walk, before the scheduler. Text comes in runs, trusted or not
// (chat.h); all of it is one text for the normaliser and the splitter, as when a rendered prompt is
// encoded as a whole. Never reads the model's files.
#include <string.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/text/bpe.h"
#include "common/text/character.h"
#include "common/text/chat.h"
#include "common/text/tokenizer_parts.h"
#include "common/text/utf8.h"

struct encoder {
    const struct tokenizer *tokenizer;
    struct split_work split;
    struct bpe bpe;
    struct normalize_work normal; // the gap at hand, normalised
    struct buf spaced;            // and with its spaces set
    bool at_start;                // the gap is where the whole text begins
    const struct text_watch *watch;
    struct id_list *out;
    size_t ids_max;
    struct err_text *e;
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
    if (n == 1 && v->byte_level) return append_id(x, v->byte_ids[(unsigned char)piece[0]]);
    if (x->tokenizer->ignore_merges) {
        uint32_t id = vocab_id(v, piece, n, true);
        if (id != ID_NONE && !v->tokens[id].only_mark) return append_id(x, id);
    }
    // No id stands for more bytes than the longest token: a hopeless piece is refused before the
    // work. Unknown characters may be fused without a limit.
    bool bounded = v->byte_level || v->unk_id == ID_NONE;
    if (bounded && (n - 1) / v->token_bytes_max >= x->ids_max - x->out->n) return too_large(x);
    if (bpe_run(&x->bpe, piece, n) != 0) return no_memory(x);
    for (uint32_t i = 0; i != ID_NONE; i = x->bpe.symbols[i].next) {
        int rc = append_id(x, x->bpe.symbols[i].id);
        if (rc != 0) return rc;
    }
    return 0;
}

static int encode_ordinary(struct encoder *x, const char *text, size_t n) {
    if (n >= INT32_MAX) return too_large(x);
    // Piece by piece: a text of too many tokens is not cut beyond the last that fits.
    struct split_piece piece;
    int rc = 0;
    split_start(&x->split, text, n);
    while (rc == 0 && split_next(&x->split, &piece, &rc, x->e))
        rc = encode_piece(x, text + piece.begin, piece.end - piece.begin);
    if (rc == ERR_REQ_ABORTED) return err_set(x->e, rc, "nobody waits for the text any more");
    return rc == ERR_FATAL_NOMEM ? no_memory(x) : rc;
}

// Writes marks for spaces and the space that the text begins with by rule.
static void set_spaces(const struct spacing *spacing, const struct segment *gap, bool prefix,
                       struct buf *out) {
    const char *mark = spacing->n_mark > 0 ? spacing->mark : " ";
    size_t n_mark = spacing->n_mark > 0 ? spacing->n_mark : 1;
    for (size_t i = gap->begin; i < gap->end;) {
        const char *space = memchr(gap->text + i, ' ', gap->end - i);
        size_t end = space == NULL ? gap->end : (size_t)(space - gap->text);
        bool has_mark = end > i && end - i >= n_mark && memcmp(gap->text + i, mark, n_mark) == 0;
        if (i == gap->begin && prefix && end > i && !has_mark) buf_add(out, mark, n_mark);
        buf_add(out, gap->text + i, end - i);
        if (space != NULL) buf_add(out, mark, n_mark);
        i = end + (space != NULL);
    }
}

static int encode_gap(struct encoder *x, const struct segment *gap) {
    const struct spacing *spacing = &x->tokenizer->spacing;
    bool first = x->at_start && gap->begin == 0;
    bool prefix = spacing->prefix == PREFIX_ALWAYS || (spacing->prefix == PREFIX_FIRST && first);
    if (!prefix && spacing->n_mark == 0)
        return encode_ordinary(x, gap->text + gap->begin, gap->end - gap->begin);
    buf_reset(&x->spaced);
    set_spaces(spacing, gap, prefix, &x->spaced);
    if (x->spaced.failed) return no_memory(x);
    return encode_ordinary(x, x->spaced.data, x->spaced.bytes);
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

// What of the segment a token takes: itself and, where it says so, the white space around it. What
// others took is not looked at again: of the white space in front nothing is left there, and a
// token inside of it ends where it ends.
struct taken {
    size_t begin, end;
};

static bool is_apart(const struct added_token *token, const struct segment *s, size_t begin) {
    size_t end = begin + token->n_bytes;
    return !character_word_before(s->text + s->begin, begin - s->begin) &&
           !character_word_at(s->text + end, s->end - end);
}

static struct taken take(const struct added_token *token, const struct segment *s, size_t begin,
                         size_t done) {
    struct taken t = {begin, begin + token->n_bytes};
    if (begin < done)
        t.begin = done;
    else if (token->lstrip)
        t.begin -= character_spaces_before(s->text + done, begin - done);
    if (token->rstrip && t.end < done)
        t.end = done;
    else if (token->rstrip)
        t.end += character_spaces_at(s->text + t.end, s->end - t.end);
    return t;
}

typedef int gap_encoder(struct encoder *x, const struct segment *gap);

static int emit_gap(struct encoder *x, const struct segment *s, struct taken gap,
                    gap_encoder *encode) {
    if (gap.begin >= gap.end) return 0;
    struct segment rest = *s;
    rest.begin = gap.begin;
    rest.end = gap.end;
    return encode(x, &rest);
}

// Emits the set's tokens in the segment and hands what lies between to encode. The search goes on
// right behind a token's own bytes, whatever white space it took, as in Hugging Face.
static int scan(struct encoder *x, const struct added_set *set, const struct segment *s,
                gap_encoder *encode) {
    struct trust_cursor trust = {.runs = s->runs, .index = runs_find(&s->runs, s->begin)};
    size_t at = s->begin, done = s->begin;
    for (;;) {
        const struct added_token *token = next_added(set, s, &trust, &at);
        if (token == NULL) break;
        size_t begin = at;
        at += token->n_bytes;
        if (token->single_word && !is_apart(token, s, begin)) continue;
        struct taken t = take(token, s, begin, done);
        int rc = emit_gap(x, s, (struct taken){done, t.begin}, encode);
        if (rc == 0) rc = append_id(x, token->id);
        if (rc != 0) return rc;
        done = t.end;
    }
    return emit_gap(x, s, (struct taken){done, s->end}, encode);
}

static int encode_raw_gap(struct encoder *x, const struct segment *gap) {
    struct segment normal;
    if (normalize_segment(&x->tokenizer->normalizer, &x->normal, gap, &normal) != 0)
        return no_memory(x);
    x->at_start = gap->begin == 0;
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

static void encoder_finish(struct encoder *x) {
    split_work_finish(&x->split);
    bpe_finish(&x->bpe);
    buf_finish(&x->spaced);
    for (int i = 0; i < 2; i++) {
        buf_finish(&x->normal.texts[i]);
        mem_free(x->normal.runs[i].list);
    }
}

static int encode_prompt(struct encoder *x, const struct chat_output *prompt) {
    struct runs runs = {.list = mem_array(prompt->n_spans, sizeof(struct run))};
    for (int i = 0; i < 2; i++)
        x->normal.runs[i].list = mem_array(prompt->n_spans, sizeof(struct run));
    bpe_init(&x->bpe, &x->tokenizer->vocab);
    int rc = split_work_init(&x->split, &x->tokenizer->splitter);
    x->split.watch = x->watch;
    if (rc != 0 || runs.list == NULL || x->normal.runs[0].list == NULL ||
        x->normal.runs[1].list == NULL) {
        rc = no_memory(x);
    } else {
        merge_runs(prompt->spans, prompt->n_spans, &runs);
        check(runs.n > 0 && runs.list[runs.n - 1].end == prompt->bytes);
        rc = encoder_run(x, prompt->text, prompt->bytes, &runs);
    }
    encoder_finish(x);
    mem_free(runs.list);
    return rc;
}

int tokenizer_encode_spans(const struct tokenizer *t, const struct chat_output *prompt,
                           const struct encode_bounds *bounds, struct id_list *out,
                           struct err_text *e) {
    struct encoder x = {
        .tokenizer = t, .watch = bounds->watch, .out = out, .ids_max = bounds->ids_max, .e = e};
    if (out->n > x.ids_max) return too_large(&x);
    if (prompt->bytes == 0) return 0;
    size_t n_before = out->n;
    int rc = encode_prompt(&x, prompt);
    if (rc != 0) out->n = n_before;
    return rc;
}

static int append_affix(const struct tokenizer *t, const struct affix *affix,
                        const struct encode_text *text, struct id_list *out, struct err_text *e) {
    struct encoder x = {.tokenizer = t, .out = out, .ids_max = text->ids_max, .e = e};
    int rc = 0;
    for (uint32_t i = 0; i < affix->n && rc == 0 && text->add_special; i++)
        rc = append_id(&x, affix->ids[i]);
    return rc;
}

int tokenizer_encode(const struct tokenizer *t, const struct encode_text *text, struct id_list *out,
                     struct err_text *e) {
    struct chat_span span = {.end = text->bytes, .trusted = text->parse_special};
    struct chat_output whole = {.bytes = text->bytes, .spans = &span, .n_spans = 1};
    memcpy(&whole.text, &text->text, sizeof whole.text); // encode_spans only reads it
    const struct encode_bounds bounds = {text->ids_max, text->watch};
    size_t n_before = out->n;
    int rc = append_affix(t, &t->before, text, out, e);
    if (rc == 0) rc = tokenizer_encode_spans(t, &whole, &bounds, out, e);
    if (rc == 0) rc = append_affix(t, &t->after, text, out, e);
    if (rc != 0) out->n = n_before;
    return rc;
}
