// fuzz_fabric.c: messages that arrive from anywhere: headers of any content and length, before and
// after the group is known.
//
// The input is a list of arrivals: one byte says which fields to make right (so that the fuzzer
// gets past the nonce), one the length of the header, two that of the data; then header bytes.
#include <string.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/net/fabric_impl.h"

#define EPOCH 5
#define NONCE UINT64_C(0x1122334455667788)
#define N_PEERS 3
#define MESSAGE_BYTES_MAX 1000
#define CONNECT_AT 4 // arrivals that come before the group is known

enum { FIX_EPOCH = 1, FIX_NONCE = 2, FIX_MAGIC = 4, FIX_SOURCE = 8, FIX_TAG = 16 };

struct input {
    const uint8_t *data;
    size_t bytes;
};

static uint8_t take_byte(struct input *in) {
    if (in->bytes == 0) return 0;
    in->bytes--;
    return *in->data++;
}

static void arrive(struct fabric *f, struct input *in) {
    uint8_t fix = take_byte(in), header_bytes = take_byte(in);
    size_t bytes = take_byte(in) | (size_t)take_byte(in) << 8;
    uint8_t raw[256] = {0};
    struct fabric_header h = {0};
    for (size_t i = 0; i < header_bytes && i < sizeof h; i++)
        raw[i] = take_byte(in);
    memcpy(&h, raw, sizeof h);
    if (fix & FIX_EPOCH) h.epoch = EPOCH;
    if (fix & FIX_NONCE) h.nonce = NONCE;
    if (fix & FIX_MAGIC) h.magic = FABRIC_MAGIC;
    if (fix & FIX_SOURCE) h.source %= N_PEERS;
    if (fix & FIX_TAG)
        h.tag =
            fabric_tag((enum fabric_message)(FABRIC_PLAN + h.tag % FABRIC_TEST), h.tag >> 16, 0);
    memcpy(raw + 1, &h, sizeof h); // at an odd address, as UCX may give it
    uint8_t *data = mem_pages(bytes, FABRIC_DATA_ALIGN);
    check(data != NULL);
    struct fabric_arrival arrival = {.header = raw + 1,
                                     .header_bytes = fix & 128 ? header_bytes : sizeof h,
                                     .data = data,
                                     .bytes = bytes};
    if (!fabric_arrived(f, &arrival)) mem_pages_free(data, bytes);
}

static void connect_group(struct fabric *f) {
    const uint8_t address[1] = {0};
    const uint8_t *addresses[N_PEERS] = {address, address, address};
    size_t address_bytes[N_PEERS] = {1, 1, 1};
    struct fabric_group group = {.epoch = EPOCH,
                                 .nonce = NONCE,
                                 .self = 0,
                                 .n_peers = N_PEERS,
                                 .addresses = addresses,
                                 .address_bytes = address_bytes};
    check(fabric_connect(f, &group, NULL) == 0);
}

// Whatever may be taken is from a member and within the limit.
static void take_all(struct fabric *f) {
    for (int kind = FABRIC_PLAN; kind <= FABRIC_TEST; kind++) {
        struct fabric_want want = {
            .peer = FABRIC_ANY_PEER, .kind = (enum fabric_message)kind, .step = FABRIC_ANY_STEP};
        struct fabric_msg m;
        while (fabric_recv(f, &want, 0, &m) == 0) {
            check(m.peer < N_PEERS && m.bytes <= MESSAGE_BYTES_MAX &&
                  fabric_tag_kind(m.tag) == want.kind);
            if (m.bytes % 2 == 0) fabric_release(f, &m); // the others stay until the epoch ends
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct input in = {data, bytes};
    struct env *env = env_real_create();
    struct waker *waker;
    struct fabric *f;
    uint8_t address[FABRIC_ADDRESS_MAX];
    size_t address_bytes;
    log_set_level(LOG_ERROR);
    check(env != NULL && waker_create(env, &waker) == 0);
    struct fabric_config config = {
        .env = env, .waker = waker, .message_bytes_max = MESSAGE_BYTES_MAX};
    check(fabric_open(&f, FABRIC_SELF, &config, NULL) == 0);
    check(fabric_begin(f, address, &address_bytes, NULL) == 0);
    for (int i = 0; i < CONNECT_AT; i++)
        arrive(f, &in);
    connect_group(f);
    while (in.bytes > 0)
        arrive(f, &in);
    take_all(f);
    fabric_close(f);
    waker_destroy(waker);
    env_real_destroy(env);
    return 0;
}
