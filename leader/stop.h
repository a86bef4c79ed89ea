// stop.h: stop strings in a growing text: what may be shown, and where it ends.
//
// The text ends before (with keep: behind) the stop string that is complete first (the longest of
// those that end together), wherever tokens begin and end. Text that may still become a stop string
// is held back.
#ifndef MOESAIC_LEADER_STOP_H
#define MOESAIC_LEADER_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/limits.h"

struct stop_strings {
    uint32_t n;
    const char *text[STOP_STRINGS_MAX]; // not owned
    size_t bytes[STOP_STRINGS_MAX];     // 1 to STOP_STRING_BYTES_MAX
    bool keep;                          // the text ends behind it
};

struct stop {
    const struct stop_strings *strings;
    struct buf held; // owned
    int matched;     // index of the string, -1 = none
};

void stop_init(struct stop *s, const struct stop_strings *strings);
void stop_finish(struct stop *s);

// Appends to out what is now certain to be shown. True when a stop string is complete: nothing may
// be pushed any more.
bool stop_push(struct stop *s, const char *text, size_t bytes, struct buf *out);
// The text ended without one: what was held back is shown.
void stop_flush(struct stop *s, struct buf *out);

#endif
