// http_client.c: see http_client.h.
#include "tests/harness/http_client.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/check.h"

#define WAIT_MS 10000

int http_client_connect(uint16_t port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    check(fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    return fd;
}

void http_client_send(int fd, const char *data, size_t bytes) {
    while (bytes != 0) {
        ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL);
        if (n <= 0) return; // the server may refuse early
        data += n;
        bytes -= (size_t)n;
    }
}

static bool contains(const struct buf *b, const char *text) {
    return b->bytes != 0 && memmem(b->data, b->bytes, text, strlen(text)) != NULL;
}

bool http_client_read(int fd, struct buf *out, const char *until) {
    char part[65536];
    for (;;) {
        if (until != NULL && contains(out, until)) break;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, WAIT_MS) <= 0) return false;
        ssize_t n = recv(fd, part, sizeof part, 0);
        if (n <= 0) break;
        buf_add(out, part, (size_t)n);
    }
    bool found = until == NULL || contains(out, until);
    buf_add(out, "", 1);
    out->bytes--;
    return found;
}

static void exchange(uint16_t port, const struct buf *request, struct buf *out) {
    int fd = http_client_connect(port);
    http_client_send(fd, request->data, request->bytes);
    http_client_read(fd, out, NULL);
    close(fd);
}

void http_client_post(uint16_t port, const char *path, const char *body, struct buf *out) {
    struct buf request;
    buf_init(&request, 0);
    buf_init(out, 0);
    buf_format(&request,
               "POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n",
               path, strlen(body));
    buf_text(&request, body);
    exchange(port, &request, out);
    buf_finish(&request);
}

void http_client_get(uint16_t port, const char *path, struct buf *out) {
    struct buf request;
    buf_init(&request, 0);
    buf_init(out, 0);
    buf_format(&request, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path);
    exchange(port, &request, out);
    buf_finish(&request);
}

int http_client_status(const struct buf *answer) {
    if (answer->bytes < 12 || memcmp(answer->data, "HTTP/1.1 ", 9) != 0) return 0;
    return (int)strtol(answer->data + 9, NULL, 10);
}

char *http_client_body(const struct buf *answer) {
    struct buf body;
    buf_init(&body, 0);
    check(answer->bytes != 0);
    char *at = strstr(answer->data, "\r\n\r\n");
    check(at != NULL);
    bool chunked = memmem(answer->data, (size_t)(at - answer->data), "chunked", 7) != NULL;
    at += 4;
    if (!chunked) buf_text(&body, at);
    while (chunked) {
        char *end;
        size_t n = strtoul(at, &end, 16);
        if (n == 0 || (size_t)(answer->data + answer->bytes - end) < n + 2) break;
        buf_add(&body, end + 2, n);
        at = end + 2 + n + 2;
    }
    buf_add(&body, "", 1);
    return body.data;
}
