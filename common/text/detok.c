// detok.c: ids to text, token by token, never splitting a character.
//
// Between the scheduler's token events and the stream. The bytes of all pushes together decode as
// Python's bytes.decode(errors="replace") would decode them at once.
#include <string.h>

#include "common/base/check.h"
#include "common/text/tokenizer_parts.h"
#include "common/text/utf8.h"

void detok_init(struct detok *d, const struct tokenizer *t, bool skip_special) {
    *d = (struct detok){.tokenizer = t, .skip_special = skip_special};
}

// A byte may at worst become a replacement of three, and one more may stand for what was pending.
size_t detok_bytes_max(const struct tokenizer *t) {
    return 3 * ((size_t)t->vocab.token_bytes_max + 1);
}

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

size_t detok_push(struct detok *d, uint32_t id, char *buf, size_t cap) {
    const struct tokenizer *t = d->tokenizer;
    check(cap >= detok_bytes_max(t));
    size_t n, used = 0, written = 0;
    const char *bytes = tokenizer_bytes(t, id, &n);
    if (bytes == NULL || (d->skip_special && tokenizer_is_special(t, id))) return 0;
    if (d->n_pending > 0) written = decode_pending(d, bytes, n, &used, buf);
    if (used < n) written += decode(d, bytes + used, n - used, buf + written);
    return written;
}

size_t detok_finish(struct detok *d, char *buf, size_t cap) {
    if (d->n_pending == 0) return 0;
    check(cap >= 3);
    memcpy(buf, UTF8_REPLACEMENT, 3);
    d->n_pending = 0;
    return 3;
}
