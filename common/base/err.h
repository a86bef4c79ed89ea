// err.h: every error code, grouped by what it breaks, and the text that goes with one.
//
// ERR_REQ_* ends one request. ERR_PEER_* loses a worker, a link or an epoch and starts recovery.
// ERR_FATAL_* ends the process. Functions return 0 or one of these and set their outputs only on
// success.
#ifndef MOESAIC_COMMON_BASE_ERR_H
#define MOESAIC_COMMON_BASE_ERR_H

enum err {
    ERR_AGAIN = -1, // nothing there yet, or woken: look at all sources again, then wait again

    ERR_REQ_INVALID = -100,     // a field is wrong; the text names it (HTTP 400)
    ERR_REQ_NOT_FOUND = -101,   // no such model or path (404)
    ERR_REQ_TOO_LARGE = -102,   // body, prompt or count over a limit (400 or 413)
    ERR_REQ_QUEUE_FULL = -103,  // admission refused (429)
    ERR_REQ_UNAVAILABLE = -104, // no group to run it (503)
    ERR_REQ_ABORTED = -105,     // the client left, or a stop string matched
    ERR_REQ_NONFINITE = -106,   // logits were not finite (500)
    ERR_REQ_WORKER_LOST = -107, // its group was lost while it ran (503)
    ERR_REQ_REFUSED = -108,     // by the model's chat template, in its own words (400)

    ERR_PEER_LOST = -200,     // a peer is gone
    ERR_PEER_EPOCH = -201,    // the epoch was closed
    ERR_PEER_TIMEOUT = -202,  // a bounded wait ran out
    ERR_PEER_PROTOCOL = -203, // a peer sent what it must not
    ERR_PEER_REFUSED = -204,  // build, digest, class or epoch do not match

    ERR_FATAL_NOMEM = -300,
    ERR_FATAL_IO = -301, // file or socket; the text names it
    ERR_FATAL_MODEL =
        -302, // a model, tokenizer or template file is wrong; the text names file and field
    ERR_FATAL_CONFIG = -303,  // a flag, key or variable is wrong; the text names it
    ERR_FATAL_STOPPED = -304, // the process was told to stop (in the simulator: was killed)
    ERR_FATAL_BOOKS = -305    // a recount of our own books did not add up: a bug
};

#define ERR_TEXT_MAX 512

struct err_text {
    char text[ERR_TEXT_MAX];
};

// Formats the text (cut at ERR_TEXT_MAX - 1) and returns code, so that `return err_set(...)` reads
// well. e may be NULL.
int err_set(struct err_text *e, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// The code's name in lower case ("peer_lost"), for logs and metrics.
const char *err_name(int code);

#endif
