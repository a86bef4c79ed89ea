// normalize.c: see normalize.h. Each step reads one text and its runs and appends another; two
// buffers take turns.
#include "common/text/normalize.h"

#include <string.h>

#include "common/base/check.h"
#include "common/text/character.h"
#include "common/text/utf8.h"

// A whole text on its way through the steps.
struct text_runs {
    const char *text;
    size_t n;
    struct runs runs;
};

// --- forms

// Moves a boundary between two runs to where the text may be normalised part by part: before a
// character that combines with nothing on its left. Characters in between count as not trusted.
static size_t safe_boundary(const struct text_runs *s, size_t at, bool forward) {
    while (at > 0 && at < s->n) {
        bool plain = (unsigned char)s->text[at] < 0xcc && utf8_is_start(s->text[at]);
        if (plain) break;
        if (forward)
            at++;
        else
            at--;
    }
    return at;
}

static int apply_form(const struct normalizer_step *step, const struct text_runs *s,
                      struct buf *out, struct runs *runs) {
    size_t begin = 0;
    runs->n = 0;
    for (size_t i = 0; i < s->runs.n && begin < s->n; i++) {
        struct run run = s->runs.list[i];
        if (run.end <= begin) continue;
        size_t end = run.end >= s->n ? s->n : safe_boundary(s, run.end, !run.trusted);
        if (end <= begin) continue;
        if (nfc_append(out, step->form, s->text + begin, end - begin) != 0) return ERR_FATAL_NOMEM;
        runs->list[runs->n++] = (struct run){.end = out->bytes, .trusted = run.trusted};
        begin = end;
    }
    check(begin == s->n);
    return 0;
}

// --- the others

static void apply_prepend(const struct normalizer_step *step, const struct text_runs *s,
                          struct buf *out, struct runs *runs) {
    buf_add(out, step->to, step->n_to);
    buf_add(out, s->text, s->n);
    for (size_t i = 0; i < s->runs.n; i++) {
        runs->list[i] = s->runs.list[i];
        runs->list[i].end += step->n_to;
    }
    runs->n = s->runs.n;
}

static const char *find(const struct normalizer_step *step, const char *text, size_t n) {
    return n == 0 ? NULL : memmem(text, n, step->from, step->n_from);
}

// Settles the runs that end before read, or inside the match that begins there: their new ends.
static void carry_runs(const struct text_runs *s, struct runs *runs, size_t read, size_t written) {
    while (runs->n < s->runs.n && s->runs.list[runs->n].end <= read) {
        struct run run = s->runs.list[runs->n];
        runs->list[runs->n++] = (struct run){run.end + written - read, run.trusted};
    }
}

static void apply_replace(const struct normalizer_step *step, const struct text_runs *s,
                          struct buf *out, struct runs *runs) {
    size_t read = 0;
    runs->n = 0;
    while (read < s->n) {
        const char *match = find(step, s->text + read, s->n - read);
        size_t end = match == NULL ? s->n : (size_t)(match - s->text);
        buf_add(out, s->text + read, end - read);
        read = end;
        carry_runs(s, runs, read, out->bytes);
        if (match == NULL) break;
        size_t before = out->bytes;
        buf_add(out, step->to, step->n_to);
        read += step->n_from;
        // A boundary inside what was matched: the written text belongs to the side without trust.
        for (size_t to = before; runs->n < s->runs.n && s->runs.list[runs->n].end < read;) {
            bool trusted = s->runs.list[runs->n].trusted;
            if (!trusted) to = out->bytes;
            runs->list[runs->n++] = (struct run){to, trusted};
        }
    }
    carry_runs(s, runs, s->n, out->bytes);
}

static void apply_strip(const struct normalizer_step *step, const struct text_runs *s,
                        struct buf *out, struct runs *runs) {
    size_t begin = step->left ? character_spaces_at(s->text, s->n) : 0;
    size_t end = step->right ? s->n - character_spaces_before(s->text + begin, s->n - begin) : s->n;
    buf_add(out, s->text + begin, end - begin);
    for (size_t i = 0; i < s->runs.n; i++) {
        size_t at = s->runs.list[i].end;
        at = at < begin ? begin : at > end ? end : at;
        runs->list[i] = (struct run){at - begin, s->runs.list[i].trusted};
    }
    runs->n = s->runs.n;
}

// --- all steps

// SentencePiece's mark for a space has three bytes; that is as far as real files go.
#define GROWTH_MAX 16u

bool normalizer_explodes(const struct normalizer *z) {
    uint32_t growth = 1;
    for (uint32_t i = 0; i < z->n && growth <= GROWTH_MAX; i++) {
        const struct normalizer_step *step = &z->steps[i];
        if (step->kind != NORMALIZE_REPLACE || step->n_to <= step->n_from) continue;
        growth *= (step->n_to + step->n_from - 1) / step->n_from;
    }
    return growth > GROWTH_MAX;
}

static bool changes(const struct normalizer_step *step, const char *text, size_t n) {
    switch (step->kind) {
    case NORMALIZE_FORM: return !nfc_is_plain(step->form, text, n);
    case NORMALIZE_PREPEND: return n > 0;
    case NORMALIZE_REPLACE: return find(step, text, n) != NULL;
    case NORMALIZE_STRIP: return true;
    }
    return false;
}

static int apply(const struct normalizer_step *step, const struct text_runs *s, struct buf *out,
                 struct runs *runs) {
    buf_reset(out);
    switch (step->kind) {
    case NORMALIZE_FORM: return apply_form(step, s, out, runs);
    case NORMALIZE_PREPEND: apply_prepend(step, s, out, runs); break;
    case NORMALIZE_REPLACE: apply_replace(step, s, out, runs); break;
    case NORMALIZE_STRIP: apply_strip(step, s, out, runs); break;
    }
    return out->failed ? ERR_FATAL_NOMEM : 0;
}

// The segment as a text of its own.
static struct text_runs cut_out(const struct segment *s, struct runs *runs) {
    runs->n = 0;
    for (size_t i = runs_find(&s->runs, s->begin); i < s->runs.n; i++) {
        struct run run = s->runs.list[i];
        bool last = run.end >= s->end;
        run.end = (last ? s->end : run.end) - s->begin;
        runs->list[runs->n++] = run;
        if (last) break;
    }
    return (struct text_runs){.text = s->text + s->begin, .n = s->end - s->begin, .runs = *runs};
}

int normalize_segment(const struct normalizer *z, struct normalize_work *w, const struct segment *s,
                      struct segment *out) {
    struct text_runs at = {.text = s->text + s->begin, .n = s->end - s->begin};
    uint32_t turn = 0;
    bool changed = false;
    for (uint32_t i = 0; i < z->n; i++) {
        if (!changes(&z->steps[i], at.text, at.n)) continue;
        if (!changed) at = cut_out(s, &w->runs[1]);
        changed = true;
        if (apply(&z->steps[i], &at, &w->texts[turn], &w->runs[turn]) != 0) return ERR_FATAL_NOMEM;
        at = (struct text_runs){w->texts[turn].data, w->texts[turn].bytes, w->runs[turn]};
        turn ^= 1;
    }
    *out = *s;
    if (changed) *out = (struct segment){.text = at.text, .end = at.n, .runs = at.runs};
    return 0;
}

int normalize_text(const struct normalizer *z, const char *text, size_t n, struct buf *out) {
    struct run whole = {.end = n}, rooms[2];
    struct normalize_work w = {.runs = {{.list = &rooms[0]}, {.list = &rooms[1]}}};
    struct segment s = {.text = text, .end = n, .runs = {&whole, 1}}, normal;
    int rc = normalize_segment(z, &w, &s, &normal);
    if (rc == 0 && normal.end > normal.begin)
        buf_add(out, normal.text + normal.begin, normal.end - normal.begin);
    if (out->failed) rc = ERR_FATAL_NOMEM;
    buf_finish(&w.texts[0]);
    buf_finish(&w.texts[1]);
    return rc;
}
