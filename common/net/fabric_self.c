// fabric_self.c: a group of one process: every message is one to oneself, so only the waits are
// left to do.
#include <stdio.h>

#include "common/base/mem.h"
#include "common/net/fabric_impl.h"

struct fabric_self {
    struct fabric base;
    struct waker *inner; // owned; ends waits that must leave the owner's waker alone
};

static int self_begin(struct fabric *f, uint8_t *address, size_t *address_bytes,
                      struct err_text *e) {
    (void)f;
    (void)e;
    address[0] = 0;
    *address_bytes = 1;
    return 0;
}

static int self_connect(struct fabric *f, const struct fabric_group *group, struct err_text *e) {
    (void)f;
    (void)group;
    (void)e;
    return 0;
}

static void self_end(struct fabric *f) {
    (void)f;
}

static void self_close(struct fabric *f) {
    waker_destroy(((struct fabric_self *)f)->inner);
    mem_free(f);
}

static void self_interrupt(struct fabric *f) {
    waker_wake(((struct fabric_self *)f)->inner);
    waker_wake(f->config.waker);
}

static int self_send(struct fabric *f, uint32_t peer, const struct fabric_header *header,
                     const struct fabric_part *part) {
    (void)header;
    (void)part;
    fabric_lose(f, peer, ERR_PEER_LOST, "this fabric has one process only");
    return ERR_PEER_LOST;
}

static bool self_sent(struct fabric *f) {
    (void)f;
    return true;
}

static void self_progress(struct fabric *f) {
    (void)f;
}

static bool self_wait(struct fabric *f, int64_t deadline_ns, bool wakes) {
    if (wakes) return waker_wait(f->config.waker, deadline_ns);
    waker_wait(((struct fabric_self *)f)->inner, deadline_ns);
    return false;
}

static void self_release(struct fabric *f, void *handle) {
    (void)f;
    (void)handle;
}

static void self_describe(const struct fabric *f, char *buf, size_t cap) {
    (void)f;
    snprintf(buf, cap, "one process");
}

static const struct fabric_ops self_ops = {
    .begin = self_begin,
    .connect = self_connect,
    .end = self_end,
    .close = self_close,
    .interrupt = self_interrupt,
    .send = self_send,
    .sent = self_sent,
    .progress = self_progress,
    .wait = self_wait,
    .release = self_release,
    .describe = self_describe,
};

int fabric_open_self(struct fabric **out, const struct fabric_config *config, struct err_text *e) {
    struct fabric_self *f = mem_zalloc(sizeof *f);
    if (f == NULL) return err_set(e, ERR_FATAL_NOMEM, "no memory for a fabric");
    f->base.ops = &self_ops;
    int rc = waker_create(config->env, &f->inner);
    if (rc != 0) {
        mem_free(f);
        return err_set(e, rc, "cannot create a waker for the fabric");
    }
    *out = &f->base;
    return 0;
}
