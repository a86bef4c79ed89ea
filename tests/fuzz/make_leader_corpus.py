#!/usr/bin/env python3
"""Writes the seeds of fuzz_control and fuzz_result: lawful and spoilt conversations, in the inputs' own formats.

Protobuf is written by hand here (a dozen lines), so that seeds can be wrong on purpose.
"""
import pathlib
import struct

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"


def varint(n):
    n &= (1 << 64) - 1
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def u(field, n):
    return varint(field << 3) + varint(n)


def fixed64(field, n):
    return varint(field << 3 | 1) + struct.pack("<Q", n)


def f32(field, x):
    return varint(field << 3 | 5) + struct.pack("<f", x)


def b(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def hello(instance, build="1.0+test", wanted=-1, protocol=1, arithmetic="base"):
    return b(1, u(1, protocol) + b(2, build) + b(3, "host") + u(4, 17) + b(5, arithmetic) + b(6, "ref") + u(7, 2)
             + fixed64(9, instance) + u(15, wanted))


def loaded(shared=11, experts=100, blocks=10, model=0xD1CE):
    return b(3, fixed64(1, model) + fixed64(2, shared) + fixed64(3, experts) + u(4, 4096) + u(5, blocks))


PROGRESS = b(2, u(1, 5) + u(2, 10))


def formed(epoch, address=b"where"):
    return b(4, u(1, epoch) + b(2, address))


def ready(epoch):
    return b(5, u(1, epoch) + b(2, "lanes"))


def beat(epoch, counters=6):
    return b(6, u(1, epoch) + u(2, 3) + u(3, 1) + b(4, b"".join(varint(i) for i in range(counters))))


def closed(epoch):
    return b(7, u(1, epoch) + b(2, "a peer is gone"))


FAILED, LEAVING = b(8, b(1, "no memory")), b(9, b(1, "told to"))
OPEN, CLOSE, PASS, TICK, BREAK, SAY = 0, 1, 2, 3, 4, 5


def record(opcode, peer=1, data=b""):
    return bytes([opcode | (peer - 1) << 3]) + struct.pack("<H", len(data)) + data


def say(peer, *messages):
    return b"".join(record(SAY, peer, m) for m in messages)


def join(peer, **k):
    return record(OPEN, peer) + say(peer, hello(peer, **k))


def script(*records, group=False):
    return bytes([1 if group else 0]) + b"".join(records)


FORMED_UP = [join(1), join(2), say(1, PROGRESS, loaded()), say(2, loaded(experts=101)), record(TICK)]

CONTROL = {
    "all_the_way": script(*FORMED_UP, say(1, formed(1)), say(2, formed(1)), say(1, ready(1)), say(2, ready(1)),
                          say(1, beat(1)), record(PASS, 1, bytes(20)), record(TICK)),
    "refusals": script(join(1, build="0.9"), join(2, protocol=9), join(3, arithmetic="bf16dot"), join(4, wanted=5)),
    "wrong_weights": script(join(1), join(2), say(1, loaded()), say(2, loaded(shared=12)), join(3), say(3, loaded(model=1))),
    "wrong_order": script(join(1), say(1, ready(1)), join(2), say(2, formed(1)), join(3), say(3, loaded(), PROGRESS)),
    "form_times_out": script(*FORMED_UP, say(1, formed(1)), *[record(PASS, 1, bytes(30)) + say(1, beat(1)) + say(2, beat(0))
                                                              for _ in range(12)]),
    "group_heartbeats": script(say(1, beat(1)), say(2, beat(1)), say(1, beat(1, 5)), record(TICK), group=True),
    "group_silent": script(record(TICK), record(PASS, 1, bytes(10)), record(PASS, 1, bytes(25)), group=True),
    "group_lost_and_back": script(record(CLOSE, 2), say(1, closed(1)), join(3), say(3, loaded(experts=101)), record(PASS, 1, bytes(3)),
                                  say(1, formed(2)), say(3, formed(2)), say(1, ready(2)), say(3, ready(2)), group=True),
    "group_ends": script(say(1, LEAVING), say(2, FAILED), group=True),
    "group_breaks": script(record(BREAK), say(1, closed(1)), record(PASS, 1, bytes(11)), say(1, formed(2)), record(BREAK), group=True),
    "malformed": script(join(1), say(1, b"\x0a\xff\xff\xff\xff\x0f"), record(OPEN, 2), say(2, b"\x0b"), record(OPEN, 3), say(3, b"")),
    "same_instance": script(join(1), record(OPEN, 2), say(2, hello(1))),
}


def row(slot, token=3, logprob=-0.5, top=0, extra=b""):
    tops = b""
    if top:
        tops = b(4, b"".join(varint(i) for i in range(top))) + b(5, b"".join(struct.pack("<f", -i) for i in range(top)))
    return b(4, u(1, slot) + u(2, token) + f32(3, logprob) + tops + fixed64(6, 0x1234) + extra)


HEAD = u(1, 7) + u(2, 12) + u(3, 1)
RESULT = {
    "honest": HEAD + row(3, top=2) + row(0) + u(6, 10) + u(7, 20) + u(8, 30) + b(9, varint(1) + varint(2)),
    "nonfinite": HEAD + row(3, extra=u(7, 1)) + row(0),
    "error": HEAD + b(5, "seqs[0].slot 9 is not below 4"),
    "too_many_rows": HEAD + row(3) * 40,
    "wrong_token": HEAD + row(3, token=50) + row(0),
    "not_a_number": HEAD + row(3, logprob=float("nan")) + row(0),
    "too_many_tops": HEAD + row(3, top=20) + row(0),
    "other_epoch": u(1, 6) + u(2, 12) + u(3, 1) + row(3) + row(0),
    "cut": (HEAD + row(3, top=2) + row(0))[:-9],
}

for name, seeds in {"control": CONTROL, "result": RESULT}.items():
    folder = CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    for seed, data in seeds.items():
        (folder / seed).write_bytes(data)
