// tool_calls.h: an answer's text to content and tool calls, while it grows.
//
// Each family writes calls in a way of its own (tool_formats.c). A call is told when it is complete
// and right; until then its text is held back, and what turns out to be none (broken JSON, an end
// in the middle) is content, letter for letter. Between stop.c and http_answer.c in a request's
// walk; the stream thread's.
#ifndef MOESAIC_LEADER_TOOL_CALLS_H
#define MOESAIC_LEADER_TOOL_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"

struct json_t;

// Calls wait until they are complete, so they must not grow for ever; and one, escaped as JSON, is
// an event of a stream.
#define TOOL_BODY_BYTES_MAX (128u << 10)

// What is between the marks, as far as it is known: 1 to any number of calls, or false.
struct tool_body {
    const char *text;
    size_t bytes;
    const struct json_t *tools; // the request's; they say which values are strings
    struct json_t *calls;       // where read appends {"name", "arguments": JSON text}, maybe "id"
};

struct tool_format {
    const char *name;  // of --tool-call-parser
    const char *open;  // the mark before calls; NULL: the answer as a whole may be calls
    const char *close; // the mark behind them; NULL: they go on to the answer's end
    bool (*read)(const struct tool_body *body);
    bool short_ids;   // 9 letters and digits, which is what Mistral's templates want to see again
    bool needs_close; // a body's beginning reads as a body: without the mark behind it is none
};

// NULL when there is none of that name.
const struct tool_format *tool_format_find(const char *name);

struct tool_reader {
    const struct tool_format *format; // NULL: everything is content
    const struct json_t *tools;
    bool only_one;        // calls behind the first are dropped
    uint64_t id_seed;     // of the answer; ids follow from it
    struct buf held;      // spaces and maybe the beginning of a mark; inside: from these to the end
    size_t body;          // where in held the body begins
    size_t searched;      // of held: there is no mark that begins before
    bool inside;          // behind an opening mark
    bool begun;           // something else than spaces was content, or a call
    struct json_t *calls; // owned: {"id", "name", "arguments"}; NULL: none yet
};

// For id_seed: of one choice of the answer with that id.
uint64_t tool_id_seed(const char *answer_id, uint32_t choice);

void tool_reader_finish(struct tool_reader *r);
// Appends to content what is certain to be content.
void tool_reader_push(struct tool_reader *r, const char *text, size_t bytes, struct buf *content);
// The answer has ended; nothing may be pushed any more.
void tool_reader_end(struct tool_reader *r, struct buf *content);
size_t tool_reader_n_calls(const struct tool_reader *r);

#endif
