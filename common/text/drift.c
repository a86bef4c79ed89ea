// drift.c: see drift.h. Nothing combines over a character below U+0300, so the text is compared
// from one of these to the next.
#include "common/text/drift.h"

#include "common/base/err.h"
#include "common/text/tokenizer_parts.h"
#include "common/text/utf8.h"

static size_t part_end(const char *text, size_t n) {
    size_t end = 1;
    while (end < n && !(utf8_is_start(text[end]) && (unsigned char)text[end] < 0xcc))
        end++;
    return end;
}

// The part in the forms of all steps, which usually are one; two buffers take turns.
static int count_after(const struct normalizer *z, const char *text, size_t n, uint64_t *chars) {
    struct buf turns[2] = {{0}, {0}};
    int rc = 0;
    *chars = utf8_count(text, n);
    for (uint32_t i = 0; i < z->n && rc == 0; i++) {
        if (z->steps[i].kind != NORMALIZE_FORM) continue;
        struct buf *out = &turns[i % 2];
        buf_reset(out);
        rc = nfc_append(out, z->steps[i].form, text, n);
        text = out->data;
        n = out->bytes;
        *chars = utf8_count(text, n);
    }
    buf_finish(&turns[0]);
    buf_finish(&turns[1]);
    return rc;
}

static bool is_plain(const struct normalizer *z, const char *text, size_t n) {
    for (uint32_t i = 0; i < z->n; i++) {
        if (z->steps[i].kind == NORMALIZE_FORM && !nfc_is_plain(z->steps[i].form, text, n))
            return false;
    }
    return true;
}

int drift_find(const struct tokenizer *t, const char *text, size_t n, struct buf *out) {
    const struct normalizer *z = &t->normalizer;
    struct text_drift at = {0, 0};
    if (is_plain(z, text, n)) return 0;
    for (size_t i = 0; i < n;) {
        size_t bytes = part_end(text + i, n - i);
        uint64_t before = utf8_count(text + i, bytes), after = before;
        int rc = is_plain(z, text + i, bytes) ? 0 : count_after(z, text + i, bytes, &after);
        if (rc != 0) return rc;
        at.before += before;
        at.after += after;
        if (before != after) buf_add(out, &at, sizeof at);
        i += bytes;
    }
    return out->failed ? ERR_FATAL_NOMEM : 0;
}
