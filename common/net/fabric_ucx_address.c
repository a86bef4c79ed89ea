// fabric_ucx_address.c: whether the bytes that a peer calls its address have the shape of one.
//
// UCX reads an address without knowing its length and aborts on what it does not expect, so a
// garbled one would end every process that it is handed to. The shape is the one of UCX's address
// version 1 (its comments call it "packed address layout"): a head, then devices, each with its
// transports. What differs between builds of UCX is learnt from the process's own address; if that
// one cannot be read either, nothing is judged.
#include <math.h>
#include <string.h>

#include "common/net/fabric_ucx.h"

#define FLAG_LAST 0x80u
#define FLAG_EMPTY 0x80u // of a device: no transports
#define FLAG_PATHS 0x40u
#define FLAG_SYSTEM 0x20u
#define FLAG_HAS_EP 0x40u
#define DEVICE_LENGTH 0x1fu
#define IFACE_LENGTH 0x3fu
#define HEAD_DEBUG 0x10u
#define HEAD_UUID 0x20u
#define HEAD_CLIENT 0x40u
#define TRANSPORTS_MAX 64
// A TCP transport's own address is its port; its device's is flags, family, and an IP address or,
// on loopback, a name of the machine.
#define TCP_IFACE_BYTES 2
#define MACHINE_BYTES 8 // at least, of what names a machine where memory or loopback is shared
#define FAMILY_INET 2
#define FAMILY_INET6 10

struct reader {
    const uint8_t *at, *end;
    bool ok;
};

static const uint8_t *take(struct reader *r, size_t bytes) {
    static const uint8_t nothing[64];
    if (!r->ok || (size_t)(r->end - r->at) < bytes) {
        r->ok = false;
        return nothing;
    }
    const uint8_t *p = r->at;
    r->at += bytes;
    return p;
}

static uint8_t take_byte(struct reader *r) {
    return *take(r, 1);
}

struct transport {
    uint16_t name_sum;
    uint8_t iface_bytes, device_bytes;
    const uint8_t *device;
    float numbers[3]; // overhead, bandwidth, latency
};

struct shape {
    uint8_t head;
    uint32_t n;
    struct transport transports[TRANSPORTS_MAX];
};

static bool read_transport(struct reader *r, struct transport *t, size_t attr_bytes) {
    memcpy(&t->name_sum, take(r, sizeof t->name_sum), sizeof t->name_sum);
    memcpy(t->numbers, take(r, attr_bytes), sizeof t->numbers);
    uint8_t length = take_byte(r);
    t->iface_bytes = (uint8_t)(length & IFACE_LENGTH);
    take(r, t->iface_bytes);
    if ((length & FLAG_HAS_EP) != 0) r->ok = false; // a process's address names no endpoints
    return (length & FLAG_LAST) != 0;
}

static bool read_device(struct reader *r, struct shape *s, size_t attr_bytes) {
    uint8_t domain = take_byte(r), length = take_byte(r);
    if ((length & FLAG_PATHS) != 0) take(r, 1);
    if ((length & FLAG_SYSTEM) != 0) take(r, 1);
    uint8_t bytes = (uint8_t)(length & DEVICE_LENGTH);
    const uint8_t *device = take(r, bytes);
    bool last = (domain & FLAG_EMPTY) != 0;
    while (r->ok && !last) {
        if (s->n == TRANSPORTS_MAX) {
            r->ok = false;
            break;
        }
        struct transport *t = &s->transports[s->n++];
        *t = (struct transport){.device = device, .device_bytes = bytes};
        last = read_transport(r, t, attr_bytes);
    }
    return (length & FLAG_LAST) != 0;
}

// False: not an address whose attributes have this size.
static bool read_shape(struct shape *s, const uint8_t *data, size_t bytes, size_t attr_bytes) {
    struct reader r = {.at = data, .end = data + bytes, .ok = true};
    *s = (struct shape){.head = take_byte(&r)};
    if ((s->head & 0x0f) != 0) return false;
    take(&r, 8); // the uuid, which version 1 always has
    if ((s->head & HEAD_CLIENT) != 0) take(&r, 8);
    if ((s->head & HEAD_DEBUG) != 0) take(&r, take_byte(&r));
    for (bool last = false; r.ok && !last;)
        last = read_device(&r, s, attr_bytes);
    return r.ok && r.at == r.end && s->n > 0;
}

static bool sane_numbers(const struct transport *t) {
    for (int i = 0; i < 3; i++) {
        if (!isfinite(t->numbers[i]) || fabsf(t->numbers[i]) > 1e15f) return false;
    }
    return t->numbers[1] != 0;
}

static bool sane_tcp(const struct transport *t) {
    if (t->device_bytes < 2 || t->device[0] > 1) return false;
    uint8_t family = t->device[1];
    if (family != FAMILY_INET && family != FAMILY_INET6) return false;
    if (t->device[0] == 1) return t->device_bytes >= 2 + MACHINE_BYTES; // loopback
    return t->device_bytes == 2 + (family == FAMILY_INET ? 4 : 16);
}

// A transport that this process has too must look like its own; others UCX passes over.
static bool fits(const struct transport *t, const struct shape *own) {
    if (!sane_numbers(t)) return false;
    for (uint32_t i = 0; i < own->n; i++) {
        const struct transport *mine = &own->transports[i];
        if (mine->name_sum != t->name_sum) continue;
        if (mine->iface_bytes != t->iface_bytes) return false;
        if (t->iface_bytes == TCP_IFACE_BYTES) return sane_tcp(t);
        return t->device_bytes >=
               (mine->device_bytes < MACHINE_BYTES ? mine->device_bytes : MACHINE_BYTES);
    }
    return true;
}

bool ucx_address_has_shape(const uint8_t *address, size_t bytes, const uint8_t *own,
                           size_t own_bytes) {
    struct shape theirs, mine;
    size_t attr_bytes = 16; // three numbers and flags; some builds add an index
    if (!read_shape(&mine, own, own_bytes, attr_bytes) &&
        !read_shape(&mine, own, own_bytes, ++attr_bytes))
        return true;
    if (!read_shape(&theirs, address, bytes, attr_bytes) || theirs.head != mine.head) return false;
    for (uint32_t i = 0; i < theirs.n; i++) {
        if (!fits(&theirs.transports[i], &mine)) return false;
    }
    return true;
}
