// split.c: PCRE2 with Unicode classes, interpreted: no writable code pages, and the match limit
// means the same everywhere.
#include "common/text/split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/text/pattern.h"

// A pattern of a real tokenizer takes a few steps a byte; one that backtracks over a run of blanks
// takes two more each.
#define MATCH_STEPS_BASE 100000u
#define MATCH_STEPS_PER_BYTE 64u
#define MATCH_HEAP_KIB_MAX (256u << 10)
#define MATCH_DEPTH_MAX 10000000u

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
    mem_free(w->pieces.list);
    mem_free(w->spare.list);
    *w = (struct split_work){0};
}

static int add_piece(struct split_pieces *p, size_t begin, size_t end) {
    if (p->n == p->capacity) {
        size_t capacity = p->capacity < 64 ? 64 : 2 * p->capacity;
        struct split_piece *list = mem_resize(p->list, capacity * sizeof *list);
        if (list == NULL) return ERR_FATAL_NOMEM;
        p->list = list;
        p->capacity = capacity;
    }
    p->list[p->n++] = (struct split_piece){(uint32_t)begin, (uint32_t)end};
    return 0;
}

static int match_failed(int code, struct err_text *e) {
    if (code == PCRE2_ERROR_NOMEMORY)
        return err_set(e, ERR_FATAL_NOMEM, "no memory to split the text");
    return err_set(e, ERR_REQ_TOO_LARGE,
                   "splitting this text into words takes too many steps (pattern error %d)", code);
}

static uint32_t match_steps(size_t n) {
    size_t steps = MATCH_STEPS_BASE + MATCH_STEPS_PER_BYTE * n; // n < 2^31
    return steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX;
}

// Matches and gaps of one piece, left to right, joined by the behaviour.
struct joiner {
    struct split_pieces *out;
    enum split_behavior behavior;
    bool invert;
    bool any, last_matched; // whether there was one before, and whether it was a match
};

static bool joins(const struct joiner *j, bool matched) {
    if (!j->any) return false;
    switch (j->behavior) {
    case SPLIT_CONTIGUOUS: return matched == j->last_matched;
    case SPLIT_TO_PREVIOUS: return matched && !j->last_matched;
    case SPLIT_TO_NEXT: return !matched && j->last_matched;
    default: return false;
    }
}

static int join(struct joiner *j, size_t begin, size_t end, bool matched) {
    if (j->invert) matched = !matched;
    if (begin == end || (j->behavior == SPLIT_REMOVED && matched)) return 0;
    bool joined = joins(j, matched);
    j->any = true;
    j->last_matched = matched;
    if (!joined) return add_piece(j->out, begin, end);
    j->out->list[j->out->n - 1].end = (uint32_t)end;
    return 0;
}

// Cuts a piece of the text by one stage. It is a subject of its own: look-arounds do not see beyond
// it.
static int split_one(struct split_work *w, const struct split_stage *stage, const char *text,
                     struct split_piece piece, struct err_text *e) {
    struct joiner j = {.out = &w->spare, .behavior = stage->behavior, .invert = stage->invert};
    PCRE2_SPTR subject = (PCRE2_SPTR)text + piece.begin;
    size_t n = piece.end - piece.begin, at = 0;
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(w->match);
    pcre2_set_match_limit(w->context, match_steps(n));
    while (at < n) {
        // The text was checked once; checking again at each match would be quadratic.
        int code =
            pcre2_match(stage->code, subject, n, at, PCRE2_NO_UTF_CHECK, w->match, w->context);
        if (code == PCRE2_ERROR_NOMATCH) break;
        if (code < 0) return match_failed(code, e);
        check(range[1] > range[0] && range[0] >= at && range[1] <= n);
        if (join(&j, piece.begin + at, piece.begin + range[0], false) != 0) return ERR_FATAL_NOMEM;
        if (join(&j, piece.begin + range[0], piece.begin + range[1], true) != 0)
            return ERR_FATAL_NOMEM;
        at = range[1];
    }
    return join(&j, piece.begin + at, piece.end, false);
}

int split_run(struct split_work *w, const char *text, size_t n, struct err_text *e) {
    check(n < INT32_MAX);
    w->pieces.n = 0;
    if (n == 0) return 0;
    int rc = add_piece(&w->pieces, 0, n);
    for (uint32_t stage = 0; stage < w->splitter->n_stages && rc == 0; stage++) {
        w->spare.n = 0;
        for (size_t i = 0; i < w->pieces.n && rc == 0; i++)
            rc = split_one(w, &w->splitter->stages[stage], text, w->pieces.list[i], e);
        struct split_pieces done = w->pieces;
        w->pieces = w->spare;
        w->spare = done;
    }
    return rc;
}
