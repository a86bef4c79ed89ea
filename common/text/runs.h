// runs.h: which stretches of a text are trusted (a template's) and which are not (a user's).
//
// Every step that rewrites a text keeps its runs in step. Where it cannot tell, text counts as not
// trusted.
#ifndef MOESAIC_COMMON_TEXT_RUNS_H
#define MOESAIC_COMMON_TEXT_RUNS_H

#include <stdbool.h>
#include <stddef.h>

// Runs cover a text in order; an empty one may stand anywhere.
struct run {
    size_t end;
    bool trusted;
};

struct runs {
    struct run *list;
    size_t n;
};

// A part of a text. The runs are those of the whole text.
struct segment {
    const char *text;
    size_t begin, end;
    struct runs runs;
};

// The first run that ends behind at; n when none does.
static inline size_t runs_find(const struct runs *r, size_t at) {
    size_t low = 0, high = r->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (r->list[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

#endif
