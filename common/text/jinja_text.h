// jinja_text.h: string operations of templates that keep track of what is tainted, byte by byte.
#ifndef MOESAIC_COMMON_TEXT_JINJA_TEXT_H
#define MOESAIC_COMMON_TEXT_JINJA_TEXT_H

#include "common/text/jinja_value.h"

#define TEXT_NOT_FOUND SIZE_MAX

// Bytes with their taint, as they are written one after another: the output, a macro's result, a
// join.
struct text_writer {
    struct buf bytes, taint;
};

void text_writer_init(struct text_writer *w, size_t bytes_max);
void text_writer_finish(struct text_writer *w);
bool text_write(struct render *r, struct text_writer *w, const struct text *t);
bool text_write_bytes(struct render *r, struct text_writer *w, const char *bytes, size_t n,
                      bool tainted);
// A copy of all that was written, in the arena.
bool text_written(struct render *r, const struct text_writer *w, struct value *out);

size_t text_characters(const struct text *t);
struct text text_part(const struct text *t, size_t begin, size_t end); // byte offsets
bool text_is_tainted(const struct text *t, size_t at);
// Byte offset of the first occurrence of what at or after from, or TEXT_NOT_FOUND. Linear time.
size_t text_find(const struct text *t, const struct text *what, size_t from);
bool text_begins(const struct text *t, const struct text *what);
bool text_ends(const struct text *t, const struct text *what);
bool text_concat(struct render *r, const struct text *a, const struct text *b, struct value *out);
bool text_repeat(struct render *r, const struct text *t, int64_t times, struct value *out);
// Without the characters of set at its ends; set NULL: white space.
enum text_side { TEXT_LEFT = 1, TEXT_RIGHT = 2, TEXT_BOTH = 3 };
bool text_strip(struct render *r, const struct text *t, const struct text *set, enum text_side side,
                struct text *out);
// Characters [start, stop) in steps; as Python's slices after clamping.
bool text_slice(struct render *r, const struct text *t, const int64_t range[3], struct value *out);
// Python's str.split: separator NULL = runs of white space; maxsplit < 0 = no limit. From the right
// with rsplit's meaning.
bool text_split(struct render *r, const struct text *t, const struct text *separator,
                int64_t maxsplit, struct value *list);
bool text_rsplit(struct render *r, const struct text *t, const struct text *separator,
                 int64_t maxsplit, struct value *list);
bool text_replace(struct render *r, const struct text *t, const struct text what[2], int64_t count,
                  struct value *out);
enum text_case { CASE_UPPER, CASE_LOWER, CASE_CAPITALIZE, CASE_TITLE };
bool text_change_case(struct render *r, const struct text *t, enum text_case to, struct value *out);

#endif
