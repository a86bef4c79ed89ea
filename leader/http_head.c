// http_head.c: see http_head.h.
//
// libmicrohttpd parses in place: it overwrites each separator (blank, colon, CR, LF) with a zero
// and hands out pointers between them. So the head lies before us as it came, but for the
// separators, and where each part begins tells which separators stood there: a name must begin
// exactly two bytes behind the value before it. A version that parsed elsewhere would get every
// request refused, which no test would overlook.
#include "leader/http_head.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/limits.h"

#define VERSION_BYTES 8 // "HTTP/1.1"

struct look {
    const char *at; // where the next field must begin
    uint32_t n_fields, n_host, n_length, n_encoding, n_authorization;
    const char *length, *expect;
    bool chunked;
    int status; // 0 = fine so far
    const char *why;
};

static int wrong(struct look *l, int status, const char *why) {
    if (l->status == 0) {
        l->status = status;
        l->why = why;
    }
    return l->status;
}

// --- characters

static bool is_token(const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (!(c < 0x80 && isalnum(c)) && strchr("!#$%&'*+-.^_`|~", c) == NULL) return false;
    }
    return bytes != 0;
}

static bool is_value(const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) return false;
    }
    return true;
}

static bool is_host(const char *text) {
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (!(c < 0x80 && isalnum(c)) && strchr("-._~:[]%", c) == NULL) return false;
    }
    return true;
}

// The zeros of a query stand for its separators; there is none in the path before it.
static bool is_target(const char *text, const char *end) {
    if (text >= end || *text != '/') return false;
    for (; text < end; text++) {
        bool visible = *text > 0x20 && *text < 0x7f && *text != '#' && *text != '\\';
        if (!visible && *text != '\0') return false;
    }
    return true;
}

// --- fields

// The bytes between a name's end and its value: the colon, now zero, and blanks.
static bool is_gap(const char *from, const char *to) {
    if (from >= to || *from != '\0') return false;
    for (from++; from < to; from++) {
        if (*from != ' ' && *from != '\t') return false;
    }
    return true;
}

static void note_field(struct look *l, const char *name, const char *value) {
    if (strcasecmp(name, "Content-Length") == 0) {
        l->n_length++;
        l->length = value;
    } else if (strcasecmp(name, "Transfer-Encoding") == 0) {
        l->n_encoding++;
        l->chunked = strcasecmp(value, "chunked") == 0;
    } else if (strcasecmp(name, "Host") == 0) {
        l->n_host++;
        if (!is_host(value)) wrong(l, 400, "the Host header is not a host");
    } else if (strcasecmp(name, "Authorization") == 0) {
        l->n_authorization++;
    } else if (strcasecmp(name, "Expect") == 0) {
        l->expect = value;
    }
}

static enum MHD_Result see_field(void *context, enum MHD_ValueKind kind, const char *name,
                                 size_t name_bytes, const char *value, size_t value_bytes) {
    struct look *l = context;
    (void)kind;
    if (++l->n_fields > HEADERS_MAX) {
        wrong(l, 431, "too many header fields");
        return MHD_NO;
    }
    if (name != l->at || value == NULL || !is_gap(name + name_bytes, value) ||
        !is_token(name, name_bytes) || !is_value(value, value_bytes)) {
        wrong(l, 400, "a header line is malformed");
        return MHD_NO;
    }
    note_field(l, name, value);
    l->at = value + value_bytes + 2;
    return MHD_YES;
}

// --- the first line

static enum MHD_Result see_query(void *context, enum MHD_ValueKind kind, const char *name,
                                 size_t name_bytes, const char *value, size_t value_bytes) {
    const char **first = context;
    (void)kind, (void)name_bytes, (void)value, (void)value_bytes;
    *first = name;
    return MHD_NO;
}

// The version follows the target after one blank, or after a query, which begins behind one '?'.
static bool is_target_end(const struct http_head_text *t) {
    const char *end = t->target + strlen(t->target), *query = NULL;
    if (t->version == end + 1) return true;
    MHD_get_connection_values_n(t->connection, MHD_GET_ARGUMENT_KIND, see_query, &query);
    return query == end + 1 || (query == NULL && t->version == end + 2);
}

static int check_line(struct look *l, const struct http_head_text *t) {
    if (strcmp(t->version, "HTTP/1.1") != 0 && strcmp(t->version, "HTTP/1.0") != 0)
        return wrong(l, 400, "the HTTP version must be 1.1 or 1.0");
    if (!is_target(t->target, t->version - 1))
        return wrong(l, 400, "the request target must be a plain path");
    if (t->target != t->method + strlen(t->method) + 1 || !is_target_end(t))
        return wrong(l, 400, "the request line is malformed");
    return 0;
}

// --- the head as a whole

// What is left behind the last field is one empty line.
static bool ends_here(const struct look *l, const struct http_head_text *t) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(t->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return info != NULL && t->method + info->header_size == l->at + 2;
}

static int check_framing(struct look *l, const struct http_head_text *t) {
    bool post = strcmp(t->method, "POST") == 0;
    if (l->n_length > 1) return wrong(l, 400, "more than one Content-Length header");
    if (l->n_length != 0 && l->n_encoding != 0)
        return wrong(l, 400, "Content-Length together with Transfer-Encoding");
    if (l->n_encoding > 1 || (l->n_encoding == 1 && !l->chunked))
        return wrong(l, 400, "the only supported Transfer-Encoding is chunked");
    if (l->chunked && strcmp(t->version, "HTTP/1.1") != 0)
        return wrong(l, 400, "Transfer-Encoding needs HTTP/1.1");
    if (post && l->n_length + l->n_encoding == 0)
        return wrong(l, 411, "a POST request needs a Content-Length");
    return 0;
}

static int check_fields(struct look *l, const struct http_head_text *t) {
    if (l->status != 0) return l->status;
    if (!ends_here(l, t)) return wrong(l, 400, "a header line is malformed");
    if (l->n_host > 1) return wrong(l, 400, "more than one Host header");
    if (l->n_authorization > 1) return wrong(l, 400, "more than one Authorization header");
    if (l->expect != NULL && strcasecmp(l->expect, "100-continue") != 0)
        return wrong(l, 417, "the only supported expectation is 100-continue");
    return check_framing(l, t);
}

int http_head_read(struct http_head *out, const struct http_head_text *text, const char **why) {
    struct look l = {.at = text->version + VERSION_BYTES + 2};
    int status = check_line(&l, text);
    if (status == 0) {
        MHD_get_connection_values_n(text->connection, MHD_HEADER_KIND, see_field, &l);
        status = check_fields(&l, text);
    }
    if (status != 0) {
        *why = l.why;
        return status;
    }
    // libmicrohttpd has checked that it is a number; the largest one stands for all above it.
    *out = (struct http_head){.chunked = l.chunked,
                              .expects = l.expect != NULL,
                              .length_bytes = l.length == NULL ? 0 : strtoull(l.length, NULL, 10)};
    return 0;
}

// --- paths

static int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool http_head_decode(char *path) {
    char *to = path;
    for (const char *from = path; *from != '\0'; from++) {
        int c = (unsigned char)*from;
        if (c == '%') {
            int high = digit(from[1]), low = high < 0 ? -1 : digit(from[2]);
            if (low < 0) return false;
            c = high * 16 + low;
            from += 2;
        }
        if (c < 0x20 || c == 0x7f) return false;
        *to++ = (char)c;
    }
    *to = '\0';
    return true;
}
