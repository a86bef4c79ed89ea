// split.c: PCRE2 with Unicode classes, interpreted: no writable code pages, and the match limit
// means the same everywhere.
#include "common/text/split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/text/pattern.h"
#include "common/text/tokenizer.h"

// A pattern of a real tokenizer takes a few steps a byte; one that backtracks over a run of blanks
// takes two more each.
#define MATCH_STEPS_BASE 100000u
#define MATCH_STEPS_PER_BYTE 64u
#define MATCH_HEAP_KIB_MAX (256u << 10)
#define MATCH_DEPTH_MAX 10000000u
#define MATCHES_PER_LOOK 1024u // at the watch: it takes a lock, a match less than a microsecond

static void *pcre_alloc(size_t bytes, void *unused) {
    (void)unused;
    return mem_alloc(bytes);
}

static void pcre_free(void *p, void *unused) {
    (void)unused;
    mem_free(p);
}

int splitter_init(struct splitter *s, struct err_text *e) {
    *s = (struct splitter){0};
    s->memory = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    if (s->memory == NULL)
        return err_set(e, ERR_FATAL_NOMEM, "tokenizer.json: no memory for patterns");
    return 0;
}

void splitter_finish(struct splitter *s) {
    for (uint32_t i = 0; i < s->n_stages; i++)
        pcre2_code_free(s->stages[i].code);
    pcre2_general_context_free(s->memory);
    *s = (struct splitter){0};
}

static int compile(struct splitter *s, const struct buf *pattern, const struct split_rule *rule,
                   struct err_text *e) {
    pcre2_compile_context *context = pcre2_compile_context_create(s->memory);
    if (context == NULL)
        return err_set(e, ERR_FATAL_NOMEM, "tokenizer.json: no memory for patterns");
    pcre2_set_parens_nest_limit(context, 32);
    uint32_t options =
        PCRE2_UTF | (rule->literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C);
    int code = 0;
    PCRE2_SIZE at = 0;
    pcre2_code *stage_code =
        pcre2_compile((PCRE2_SPTR)pattern->data, pattern->bytes, options, &code, &at, context);
    pcre2_compile_context_free(context);
    if (stage_code == NULL) {
        char why[120] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        return err_set(e, ERR_FATAL_MODEL, "tokenizer.json: pattern: %s", why);
    }
    uint32_t matches_empty = 0;
    pcre2_pattern_info(stage_code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
    if (matches_empty) {
        pcre2_code_free(stage_code);
        return err_set(e, ERR_FATAL_MODEL,
                       "tokenizer.json: pattern: it can match the empty string");
    }
    s->stages[s->n_stages++] = (struct split_stage){
        .code = stage_code, .invert = rule->invert, .behavior = rule->behavior};
    return 0;
}

int splitter_add(struct splitter *s, const struct split_rule *rule, struct err_text *e) {
    if (s->n_stages == SPLIT_STAGES_MAX)
        return err_set(e, ERR_FATAL_MODEL, "tokenizer.json: more than %d pre-tokenizers",
                       SPLIT_STAGES_MAX);
    struct buf pattern;
    int rc = 0;
    buf_init(&pattern, (size_t)PATTERN_BYTES_MAX * 32);
    if (rule->literal) buf_add(&pattern, rule->source, rule->n);
    if (rule->literal && (rule->n == 0 || pattern.failed))
        rc = err_set(e, ERR_FATAL_MODEL, "tokenizer.json: pattern: %zu bytes", rule->n);
    if (!rule->literal) rc = pattern_translate(&pattern, rule->source, rule->n, e);
    if (rc == 0) rc = compile(s, &pattern, rule, e);
    buf_finish(&pattern);
    return rc;
}

int split_work_init(struct split_work *w, const struct splitter *s) {
    *w = (struct split_work){.splitter = s};
    w->context = pcre2_match_context_create(s->memory);
    w->match = pcre2_match_data_create(1, s->memory);
    if (w->context != NULL && w->match != NULL) {
        pcre2_set_heap_limit(w->context, MATCH_HEAP_KIB_MAX);
        pcre2_set_depth_limit(w->context, MATCH_DEPTH_MAX);
        return 0;
    }
    split_work_finish(w);
    return ERR_FATAL_NOMEM;
}

void split_work_finish(struct split_work *w) {
    pcre2_match_data_free(w->match);
    pcre2_match_context_free(w->context);
    *w = (struct split_work){0};
}

static int match_failed(int code, struct err_text *e) {
    if (code == PCRE2_ERROR_NOMEMORY)
        return err_set(e, ERR_FATAL_NOMEM, "no memory to split the text");
    return err_set(e, ERR_REQ_INVALID,
                   "splitting this text into words takes too many steps (pattern error %d)", code);
}

static uint32_t match_steps(size_t n) {
    size_t steps = MATCH_STEPS_BASE + MATCH_STEPS_PER_BYTE * n; // n < 2^31
    return steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX;
}

// --- one stage, piece by piece

static bool is_empty(const struct split_piece *p) {
    return p->begin == p->end;
}

// A piece is a subject of its own: look-arounds do not see beyond it.
static void begin_piece(struct split_cursor *c, const struct split_piece *subject) {
    *c = (struct split_cursor){.subject = *subject, .at = subject->begin};
}

static bool joins(const struct split_cursor *c, enum split_behavior behavior, bool matched) {
    if (!c->any) return false;
    switch (behavior) {
    case SPLIT_CONTIGUOUS: return matched == c->last_matched;
    case SPLIT_TO_PREVIOUS: return matched && !c->last_matched;
    case SPLIT_TO_NEXT: return !matched && c->last_matched;
    default: return false;
    }
}

// Adds a match or a gap to what it belongs to. True when a piece before it is complete, which goes
// to out.
static bool join(struct split_cursor *c, const struct split_stage *stage, struct split_piece part,
                 bool matched, struct split_piece *out) {
    if (stage->invert) matched = !matched;
    if (is_empty(&part) || (stage->behavior == SPLIT_REMOVED && matched)) return false;
    bool joined = joins(c, stage->behavior, matched);
    c->any = true;
    c->last_matched = matched;
    if (joined) {
        c->joined.end = part.end;
        return false;
    }
    *out = c->joined;
    c->joined = part;
    return !is_empty(out);
}

static bool is_over(struct split_work *w) {
    return ++w->n_matches % MATCHES_PER_LOOK == 0 && w->watch != NULL &&
           w->watch->over(w->watch->context);
}

// Finds the next match in the subject, behind at; the subject's empty end when there is none.
static int find_match(struct split_work *w, const struct split_stage *stage, struct split_cursor *c,
                      struct err_text *e) {
    const struct split_piece *s = &c->subject;
    size_t n = s->end - s->begin;
    if (is_over(w)) return ERR_REQ_ABORTED;
    pcre2_set_match_limit(w->context, match_steps(n));
    // The text was checked once; checking again at each match would be quadratic.
    int code = pcre2_match(stage->code, (PCRE2_SPTR)w->text + s->begin, n, c->at - s->begin,
                           PCRE2_NO_UTF_CHECK, w->match, w->context);
    c->match = (struct split_piece){s->end, s->end};
    if (code == PCRE2_ERROR_NOMATCH) return 0;
    if (code < 0) return match_failed(code, e);
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(w->match);
    check(range[1] > range[0] && range[0] >= c->at - s->begin && range[1] <= n);
    c->match = (struct split_piece){s->begin + (uint32_t)range[0], s->begin + (uint32_t)range[1]};
    return 0;
}

// True with the stage's next piece of its subject; false when the subject is used up, or on an
// error.
static bool cut(struct split_work *w, uint32_t index, struct split_piece *out, int *rc,
                struct err_text *e) {
    const struct split_stage *stage = &w->splitter->stages[index];
    struct split_cursor *c = &w->cursors[index];
    while (c->at < c->subject.end) {
        struct split_piece part = c->match;
        bool matched = !is_empty(&part);
        if (!matched) { // what lies before the next match comes first
            *rc = find_match(w, stage, c, e);
            if (*rc != 0) return false;
            part = (struct split_piece){c->at, c->match.begin};
        }
        if (matched) c->match = (struct split_piece){0};
        c->at = part.end;
        if (join(c, stage, part, matched, out)) return true;
    }
    *out = c->joined;
    c->joined = (struct split_piece){0};
    return !is_empty(out);
}

// --- all stages

void split_start(struct split_work *w, const char *text, size_t n) {
    check(n < INT32_MAX);
    w->text = text;
    w->whole = (struct split_piece){0, (uint32_t)n};
    for (uint32_t i = 0; i < w->splitter->n_stages; i++)
        w->cursors[i] = (struct split_cursor){0};
    if (w->splitter->n_stages > 0) begin_piece(&w->cursors[0], &w->whole);
}

bool split_next(struct split_work *w, struct split_piece *out, int *rc, struct err_text *e) {
    uint32_t n = w->splitter->n_stages;
    *rc = 0;
    if (n == 0) {
        *out = w->whole;
        w->whole.begin = w->whole.end;
        return !is_empty(out);
    }
    // From the last stage back to one that has a piece left, and forward again with it.
    for (uint32_t stage = n - 1;;) {
        struct split_piece piece;
        if (cut(w, stage, &piece, rc, e)) {
            if (stage + 1 == n) {
                *out = piece;
                return true;
            }
            begin_piece(&w->cursors[++stage], &piece);
        } else {
            if (*rc != 0 || stage == 0) return false;
            stage--;
        }
    }
}
