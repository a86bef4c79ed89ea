// detok.c: ids to text, token by token, never splitting a character.
//
// Between the scheduler's token events and the stream. Byte-level: the bytes of all pushes together
// decode as Python's bytes.decode(errors="replace") would decode them at once. Else tokens are
// text, and a run of byte tokens is text too, or one U+FFFD a byte.
#include <string.h>

#include "common/base/check.h"
#include "common/text/tokenizer_parts.h"
#include "common/text/utf8.h"

void detok_init(struct detok *d, const struct tokenizer *t, bool skip_special) {
    *d = (struct detok){.tokenizer = t, .skip_special = skip_special, .unstripped = true};
}

void detok_continue(struct detok *d) {
    d->begun = true;
    d->unstripped = false;
}

// A byte may at worst become a replacement of three, and so may what was pending.
size_t detok_bytes_max(const struct tokenizer *t) {
    size_t n_pending = t->decoder.byte_runs ? DETOK_PENDING_MAX : 1;
    return 3 * ((size_t)t->vocab.text_bytes_max + n_pending);
}

// --- byte-level

// Decodes data[0, n); a character cut at the end becomes the new pending bytes. Returns bytes
// written to out.
static size_t decode(struct detok *d, const char *data, size_t n, char *out) {
    size_t written = 0;
    d->n_pending = 0;
    for (size_t i = 0; i < n;) {
        struct utf8_unit unit = utf8_next(data + i, n - i);
        if (unit.cut) {
            d->n_pending = (uint32_t)(n - i);
            memcpy(d->pending, data + i, n - i);
            break;
        }
        memcpy(out + written, unit.valid ? data + i : UTF8_REPLACEMENT,
               unit.valid ? unit.bytes : 3);
        written += unit.valid ? unit.bytes : 3;
        i += unit.bytes;
    }
    return written;
}

// Settles the pending bytes with the first bytes of the token: how many of those it took goes to
// *used.
static size_t decode_pending(struct detok *d, const char *token, size_t n, size_t *used,
                             char *out) {
    char joint[2 * UTF8_BYTES_MAX];
    size_t n_pending = d->n_pending, n_taken = n < UTF8_BYTES_MAX ? n : UTF8_BYTES_MAX;
    check(n_pending < UTF8_BYTES_MAX);
    memcpy(joint, d->pending, n_pending);
    memcpy(joint + n_pending, token, n_taken);
    struct utf8_unit unit = utf8_next(joint, n_pending + n_taken);
    if (unit.cut) {
        *used = n; // the token was too short to end the character
        return decode(d, joint, n_pending + n_taken, out);
    }
    check(unit.bytes >=
          n_pending); // pending bytes begin a character, so a wrong one comes after them
    *used = unit.bytes - n_pending;
    d->n_pending = 0;
    size_t bytes = unit.valid ? unit.bytes : 3;
    memcpy(out, unit.valid ? joint : UTF8_REPLACEMENT, bytes);
    return bytes;
}

static size_t push_level(struct detok *d, const struct token *t, char *out) {
    size_t used = 0, written = 0;
    if (d->n_pending > 0) written = decode_pending(d, t->text, t->n_text, &used, out);
    if (used < t->n_text) written += decode(d, t->text + used, t->n_text - used, out + written);
    return written;
}

// --- text and runs of byte tokens

static size_t replace_bytes(size_t n, char *out) {
    for (size_t i = 0; i < n; i++)
        memcpy(out + 3 * i, UTF8_REPLACEMENT, 3);
    return 3 * n;
}

// The run is over: it is text when all of it is, else one U+FFFD a byte.
static size_t end_run(struct detok *d, char *out) {
    size_t n = d->n_pending;
    d->n_pending = 0;
    if (!utf8_valid((const char *)d->pending, n)) return replace_bytes(n, out);
    memcpy(out, d->pending, n);
    return n;
}

// The run has no more room: what is decided comes out, a cut character stays.
static size_t relieve_run(struct detok *d, char *out) {
    size_t whole = 0;
    const char *bytes = (const char *)d->pending;
    while (whole < d->n_pending) {
        struct utf8_unit unit = utf8_next(bytes + whole, d->n_pending - whole);
        if (unit.cut) break;
        if (!unit.valid) return end_run(d, out);
        whole += unit.bytes;
    }
    memcpy(out, bytes, whole);
    d->n_pending -= (uint32_t)whole;
    memmove(d->pending, d->pending + whole, d->n_pending);
    return whole;
}

static size_t push_text(struct detok *d, const struct token *t, char *out) {
    size_t written = 0;
    if (t->byte) {
        if (d->n_pending == DETOK_PENDING_MAX) written = relieve_run(d, out);
        d->pending[d->n_pending++] = (unsigned char)t->text[0];
        return written;
    }
    written = end_run(d, out);
    memcpy(out + written, t->text, t->n_text);
    return written + t->n_text;
}

// The first token of a text under Metaspace: all its marks go, not one.
static size_t push_unmarked(const struct decoder *decoder, const struct token *t, char *out) {
    size_t written = 0;
    for (size_t i = 0; i < t->n_bytes;) {
        bool mark = t->n_bytes - i >= decoder->n_mark &&
                    memcmp(t->bytes + i, decoder->mark, decoder->n_mark) == 0;
        if (!mark) out[written++] = t->bytes[i];
        i += mark ? decoder->n_mark : 1;
    }
    return written;
}

// --- the beginning of the whole

// Takes the decoder's strip_max characters from the front of the text; returns what is left.
static size_t strip(struct detok *d, char *text, size_t n) {
    const struct decoder *decoder = &d->tokenizer->decoder;
    size_t at = 0;
    if (!d->unstripped) return n;
    while (d->n_stripped < decoder->strip_max && n - at >= decoder->n_strip &&
           memcmp(text + at, decoder->strip, decoder->n_strip) == 0) {
        d->n_stripped++;
        at += decoder->n_strip;
    }
    if (at < n || d->n_stripped == decoder->strip_max) d->unstripped = false;
    memmove(text, text + at, n - at);
    return n - at;
}

size_t detok_push(struct detok *d, uint32_t id, char *buf, size_t cap) {
    const struct tokenizer *t = d->tokenizer;
    check(cap >= detok_bytes_max(t));
    if (id >= t->vocab.n_ids || t->vocab.tokens[id].bytes == NULL) return 0;
    const struct token *token = &t->vocab.tokens[id];
    if (d->skip_special && token->special) return 0;
    bool first = !d->begun;
    d->begun = true;
    if (t->vocab.byte_level) return push_level(d, token, buf);
    if (first && t->decoder.first_unmark && !token->byte)
        return strip(d, buf, push_unmarked(&t->decoder, token, buf));
    return strip(d, buf, push_text(d, token, buf));
}

size_t detok_finish(struct detok *d, char *buf, size_t cap) {
    if (d->n_pending == 0) return 0;
    check(cap >= 3 * (size_t)d->n_pending);
    if (!d->tokenizer->vocab.byte_level) return strip(d, buf, end_run(d, buf));
    d->n_pending = 0;
    memcpy(buf, UTF8_REPLACEMENT, 3);
    return 3;
}
