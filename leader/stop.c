// stop.c: see stop.h.
#include "leader/stop.h"

#include <string.h>

#include "common/base/check.h"

void stop_init(struct stop *s, const struct stop_strings *strings) {
    *s = (struct stop){.strings = strings, .matched = -1};
}

void stop_finish(struct stop *s) {
    buf_finish(&s->held);
}

// The longest string that ends at `end` of the held text.
static int match_at(const struct stop *s, size_t end) {
    const struct stop_strings *strings = s->strings;
    int best = -1;
    for (uint32_t i = 0; i < strings->n; i++) {
        size_t n = strings->bytes[i];
        if (n > end || memcmp(s->held.data + end - n, strings->text[i], n) != 0) continue;
        if (best < 0 || n > strings->bytes[best]) best = (int)i;
    }
    return best;
}

// True when the last n held bytes are the beginning of a stop string.
static bool may_become(const struct stop *s, size_t n) {
    const char *tail = s->held.data + s->held.bytes - n;
    for (uint32_t i = 0; i < s->strings->n; i++) {
        if (n < s->strings->bytes[i] && memcmp(tail, s->strings->text[i], n) == 0) return true;
    }
    return false;
}

static size_t longest_held(const struct stop *s) {
    size_t n = 0;
    for (uint32_t i = 0; i < s->strings->n; i++) {
        if (s->strings->bytes[i] > n) n = s->strings->bytes[i];
    }
    if (n != 0) n--;
    if (n > s->held.bytes) n = s->held.bytes;
    while (n != 0 && !may_become(s, n))
        n--;
    return n;
}

bool stop_push(struct stop *s, const char *text, size_t bytes, struct buf *out) {
    check(s->matched < 0);
    if (s->strings->n == 0) {
        buf_add(out, text, bytes);
        return false;
    }
    size_t end = s->held.bytes;
    buf_add(&s->held, text, bytes);
    out->failed |= s->held.failed;
    while (end < s->held.bytes && s->matched < 0)
        s->matched = match_at(s, ++end);
    if (s->matched >= 0) {
        size_t cut = s->strings->keep ? 0 : s->strings->bytes[s->matched];
        buf_add(out, s->held.data, end - cut);
        buf_reset(&s->held);
        return true;
    }
    size_t keep = longest_held(s);
    size_t show = s->held.bytes - keep;
    buf_add(out, s->held.data, show);
    buf_drop(&s->held, show);
    return false;
}

void stop_flush(struct stop *s, struct buf *out) {
    buf_add(out, s->held.data, s->held.bytes);
    buf_reset(&s->held);
}
