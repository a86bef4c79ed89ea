// buf.h: a growing byte buffer for text that is built piece by piece: answers, pages, chunks.
//
// Owned by whoever embeds it; not thread-safe. A failed append (memory out, or past bytes_max)
// makes the buffer fail for good, so writers append without looking and the reader checks `failed`
// once.
#ifndef MOESAIC_COMMON_BASE_BUF_H
#define MOESAIC_COMMON_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *data; // mem_alloc'd, owned; NULL while empty
    size_t bytes, capacity;
    size_t bytes_max; // refuses to grow beyond; 0 = no limit
    bool failed;
};

void buf_init(struct buf *b, size_t bytes_max);
void buf_finish(struct buf *b);
// Empties it and keeps the memory; also forgets a failure.
void buf_reset(struct buf *b);

void buf_add(struct buf *b, const void *data, size_t bytes);
void buf_text(struct buf *b, const char *text);
void buf_format(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Appends text as a JSON string with its quotes. Bytes that are not valid UTF-8 become U+FFFD.
void buf_json(struct buf *b, const char *text, size_t bytes);
// The same without the quotes.
void buf_json_raw(struct buf *b, const char *text, size_t bytes);

// Removes the first bytes.
void buf_drop(struct buf *b, size_t bytes);

// Length of the valid UTF-8 character at text, 1 to 4, or 0 when there is none within bytes.
size_t utf8_char_bytes(const char *text, size_t bytes);

#endif
