// channel.c: what all channels share: the inbox between a transport's threads and the owner, and
// the call table.
#include "common/net/channel.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/secret.h"
#include "common/net/channel_impl.h"

static void free_strings(struct channel *c) {
    mem_free((void *)(uintptr_t)c->config.address);
    secret_free((char *)(uintptr_t)c->config.token);
    mem_free((void *)(uintptr_t)c->config.tls_name);
}

static bool copy_string(const char **field) {
    if (*field == NULL) return true;
    *field = mem_strdup(*field);
    return *field != NULL;
}

int channel_init(struct channel *c, const struct channel_ops *ops,
                 const struct channel_config *config, struct err_text *e) {
    check(config->env != NULL && config->waker != NULL && config->address != NULL);
    *c = (struct channel){.ops = ops, .config = *config};
    const char **strings[] = {&c->config.address, &c->config.token, &c->config.tls_name};
    bool copied = true;
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) // each, so that none is another's
        copied = copy_string(strings[i]) && copied;
    if (!copied) {
        free_strings(c);
        return err_set(e, ERR_FATAL_NOMEM, "no memory for a channel");
    }
    pthread_mutex_init(&c->lock, NULL);
    return 0;
}

void channel_finish(struct channel *c) {
    while (c->first != NULL) {
        struct channel_item *item = c->first;
        c->first = item->next;
        channel_item_free(item);
    }
    pthread_mutex_destroy(&c->lock);
    free_strings(c);
}

struct channel_item *channel_item_make(enum channel_event_kind kind, uint64_t peer,
                                       const char *text) {
    struct channel_item *item = mem_zalloc(sizeof *item);
    if (item == NULL) return NULL;
    item->event.kind = kind;
    item->event.peer = peer;
    if (text != NULL) snprintf(item->event.text, sizeof item->event.text, "%s", text);
    return item;
}

int channel_item_set(struct channel_item *item, const void *data, size_t bytes) {
    item->event.data = mem_alloc(bytes);
    if (item->event.data == NULL) return ERR_FATAL_NOMEM;
    if (bytes > 0) memcpy(item->event.data, data, bytes);
    item->event.bytes = bytes;
    return 0;
}

void channel_item_free(struct channel_item *item) {
    if (item == NULL) return;
    channel_event_finish(&item->event);
    mem_free(item);
}

void channel_push(struct channel *c, struct channel_item *item) {
    if (item == NULL) return;
    item->next = NULL;
    pthread_mutex_lock(&c->lock);
    if (c->last != NULL)
        c->last->next = item;
    else
        c->first = item;
    c->last = item;
    pthread_mutex_unlock(&c->lock);
    waker_wake(c->config.waker);
}

size_t channel_forget(struct channel *c, uint64_t peer) {
    size_t bytes = 0;
    pthread_mutex_lock(&c->lock);
    struct channel_item *rest = c->first;
    c->first = c->last = NULL;
    while (rest != NULL) {
        struct channel_item *item = rest;
        rest = item->next;
        item->next = NULL;
        if (item->event.peer == peer && item->event.kind == CHANNEL_MESSAGE) {
            bytes += item->event.bytes;
            channel_item_free(item);
            continue;
        }
        if (c->last != NULL)
            c->last->next = item;
        else
            c->first = item;
        c->last = item;
    }
    pthread_mutex_unlock(&c->lock);
    return bytes;
}

int channel_next(struct channel *c, struct channel_event *out) {
    if (c->ops->poll != NULL) c->ops->poll(c);
    pthread_mutex_lock(&c->lock);
    struct channel_item *item = c->first;
    if (item != NULL) {
        c->first = item->next;
        if (c->first == NULL) c->last = NULL;
    }
    pthread_mutex_unlock(&c->lock);
    if (item == NULL) return ERR_AGAIN;
    if (c->ops->taken != NULL) c->ops->taken(c, item);
    *out = item->event;
    mem_free(item);
    return 0;
}

void channel_event_finish(struct channel_event *ev) {
    mem_free(ev->data);
    ev->data = NULL;
    ev->bytes = 0;
}

int channel_send(struct channel *c, uint64_t peer, const void *data, size_t bytes) {
    if (bytes > CONTROL_MESSAGE_BYTES_MAX) return ERR_REQ_TOO_LARGE;
    return c->ops->send(c, peer, data, bytes);
}

void channel_drop(struct channel *c, uint64_t peer, bool refused, const char *reason) {
    c->ops->drop(c, peer, refused, reason);
}

void channel_close(struct channel *c) {
    if (c == NULL) return;
    c->ops->close(c); // frees c
}

bool channel_is_local(const char *address) {
    static const char *const prefixes[] = {"localhost:", "[::1]:", "unix:"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        if (strncmp(address, prefixes[i], strlen(prefixes[i])) == 0) return true;
    }
    // Only as a number: 127.example.com may be anywhere.
    return strncmp(address, "127.", 4) == 0 && address[strspn(address, "0123456789.")] == ':';
}

// --- dialling

// Doubles from the least to the most.
int64_t channel_backoff_next(struct channel_backoff *b, const struct channel_attempt *a) {
    bool lived = a->opened && a->lived_ns >= CHANNEL_LIVED_NS;
    if (lived) *b = (struct channel_backoff){.lost_until_ns = a->now_ns + CHANNEL_LOST_NS};
    bool lost = a->now_ns < b->lost_until_ns;
    int64_t least = lost ? CHANNEL_LOST_BACKOFF_MIN_NS : CHANNEL_BACKOFF_MIN_NS;
    int64_t most = lost ? CHANNEL_LOST_BACKOFF_MAX_NS : CHANNEL_BACKOFF_MAX_NS;
    int64_t next = b->last_ns == 0 ? least : b->last_ns * 2;
    if (next > most) next = most;
    if (a->refused) next = CHANNEL_BACKOFF_MAX_NS;
    b->last_ns = next;
    return next;
}

void channel_address_make(char *out, size_t bytes, const char *host, uint16_t port) {
    bool v6 = host[0] != '[' && strncmp(host, "unix:", 5) != 0 && strchr(host, ':') != NULL;
    snprintf(out, bytes, "%s%s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "", port);
}

static bool is_host(const char *host, size_t n) {
    bool bracketed = n > 2 && host[0] == '[' && host[n - 1] == ']';
    for (size_t i = bracketed ? 1 : 0; i < n - (bracketed ? 1 : 0); i++) {
        unsigned char c = (unsigned char)host[i];
        bool fits = bracketed ? isxdigit(c) || c == ':' || c == '.' || c == '%' || isalnum(c)
                              : isalnum(c) || c == '.' || c == '-' || c == '_';
        if (!fits) return false;
    }
    return n > 0;
}

static bool is_port(const char *text) {
    size_t n = strlen(text);
    if (n == 0 || n > 5 || strspn(text, "0123456789") != n) return false;
    long port = strtol(text, NULL, 10);
    return port >= 1 && port <= 65535;
}

int channel_address_check(const char *address, struct err_text *e) {
    if (strncmp(address, "unix:", 5) == 0 && address[5] != '\0') return 0;
    const char *colon = strrchr(address, ':');
    if (colon == NULL || !is_host(address, (size_t)(colon - address)))
        return err_set(e, ERR_FATAL_CONFIG,
                       "%.300s is not HOST:PORT; an IPv6 address stands in brackets, [::1]:8500",
                       address);
    if (!is_port(colon + 1))
        return err_set(e, ERR_FATAL_CONFIG, "%.300s: the port is not a number from 1 to 65535",
                       address);
    return 0;
}

int channel_check_token(const struct channel_config *config, struct err_text *e) {
    if (config->token == NULL || config->tls != NULL || config->token_in_clear ||
        channel_is_local(config->address))
        return 0;
    return err_set(e, ERR_FATAL_CONFIG,
                   "%.200s is beyond loopback and the control token would travel in clear: set up "
                   "TLS (--control-tls-cert, --control-tls-key, --control-tls-ca), or say "
                   "--control-insecure on a private network",
                   config->address);
}
