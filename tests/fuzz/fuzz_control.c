// fuzz_control.c: The leader's ear for workers: a script of JoinUp bytes, stream events and time
// against a members instance.
//
// Input: records of [opcode peer][u16 length] bytes. The opcode's low bits choose: a message of the
// peer, its stream opens, its stream closes, time passes, a tick, a break. Lawful group states are
// reached because the first byte may ask for a ready group to begin with.
#include <stdint.h>

#include "common/base/check.h"
#include "tests/harness/fake_cluster.h"

static struct fake_cluster f;

static void act(uint8_t opcode, const uint8_t *data, size_t bytes) {
    uint64_t peer = 1 + (opcode >> 3) % 5;
    switch (opcode & 7) {
    case 0: fake_open(&f, peer); break;
    case 1: fake_close(&f, peer, "the fuzzer says so"); break;
    case 2:
        fake_pass(&f, (int64_t)bytes * 100 * NS_PER_MS);
        members_tick(f.members, (opcode & 8) != 0);
        break;
    case 3:
        fake_tick(&f);
        (void)members_deadline(f.members);
        break;
    case 4: members_break(f.members, "the fuzzer says so"); break;
    default: fake_bytes(&f, peer, data, bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fake_start(&f, 2);
    if (size > 0 && (data[0] & 1) != 0) fake_group(&f);
    for (size_t at = 1; at + 3 <= size;) {
        size_t bytes = (size_t)data[at + 1] | (size_t)data[at + 2] << 8;
        uint8_t opcode = data[at];
        at += 3;
        if (bytes > size - at) bytes = size - at;
        act(opcode, data + at, bytes);
        at += bytes;
    }
    char text[160];
    members_sentence(f.members, text, sizeof text);
    check(f.n_begin >= f.n_end && f.n_begin - f.n_end == (f.open ? 1 : 0));
    fake_finish(&f);
    return 0;
}
