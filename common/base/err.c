// err.c: error texts and names.
#include "common/base/err.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

int err_set(struct err_text *e, int code, const char *format, ...) {
    if (e == NULL) return code;
    va_list args;
    va_start(args, format);
    vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    return code;
}

const char *err_name(int code) {
    switch (code) {
    case 0: return "ok";
    case ERR_AGAIN: return "again";
    case ERR_REQ_INVALID: return "req_invalid";
    case ERR_REQ_NOT_FOUND: return "req_not_found";
    case ERR_REQ_TOO_LARGE: return "req_too_large";
    case ERR_REQ_QUEUE_FULL: return "req_queue_full";
    case ERR_REQ_UNAVAILABLE: return "req_unavailable";
    case ERR_REQ_ABORTED: return "req_aborted";
    case ERR_REQ_NONFINITE: return "req_nonfinite";
    case ERR_REQ_WORKER_LOST: return "req_worker_lost";
    case ERR_REQ_REFUSED: return "req_refused";
    case ERR_PEER_LOST: return "peer_lost";
    case ERR_PEER_EPOCH: return "peer_epoch";
    case ERR_PEER_TIMEOUT: return "peer_timeout";
    case ERR_PEER_PROTOCOL: return "peer_protocol";
    case ERR_PEER_REFUSED: return "peer_refused";
    case ERR_FATAL_NOMEM: return "fatal_nomem";
    case ERR_FATAL_IO: return "fatal_io";
    case ERR_FATAL_MODEL: return "fatal_model";
    case ERR_FATAL_CONFIG: return "fatal_config";
    case ERR_FATAL_STOPPED: return "fatal_stopped";
    case ERR_FATAL_BOOKS: return "fatal_books";
    default: return "unknown";
    }
}
