#!/usr/bin/env python3
"""Writes the seeds of fuzz_control, fuzz_result, fuzz_generate and fuzz_abort: lawful and spoilt messages, in the inputs' own formats.

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



def chat(role="user", content="hi", extra=b""):
    return b(3, b(1, role) + b(2, content) + extra)


SCALARS = (u(4, 9) + f32(5, 0.5) + f32(6, 0.9) + u(7, 20) + f32(8, 0.1) + fixed64(9, 1 << 63) + b(10, "end") + b(10, "\u00e9")
           + b(11, "mine") + u(12, 1) + b(13, varint(3) + varint(4)))
GENERATE = {
    "text": b(1, "once upon a time") + SCALARS,
    "ids": b(2, b"".join(varint(i) for i in range(40))) + SCALARS,
    "ids_one_by_one": u(2, 5) + u(2, 6) + b(2, varint(7)) + u(13, 1),
    "chat": chat("system", "be brief") + chat() + chat("assistant", "") + chat("developer") + SCALARS,
    "nothing": b"",
    "two_prompts": b(1, "a") + u(2, 1),
    "wrong_role": chat() + chat("tool"),
    "zero_in_text": b(1, b"a\0b"),
    "zero_in_message": chat(content=b"a\0"),
    "zero_in_stop": b(1, "a") + b(10, b"\0"),
    "not_utf8": b(1, b"\xff"),
    "not_utf8_in_message": chat(content=b"\xc3"),
    "id_above_vocabulary": b(2, varint(1) + varint(100)),
    "not_a_number": b(1, "a") + f32(5, float("nan")),
    "infinite": b(1, "a") + f32(8, float("inf")),
    "too_hot": b(1, "a") + f32(5, 2.5),
    "wide_top_k": b(1, "a") + u(7, (1 << 32) - 1),
    "many_stops": b(1, "a") + b(10, "x") * 18,
    "empty_stop": b(1, "a") + b(10, ""),
    "bad_request_id": b(1, "a") + b(11, "a b"),
    "unknown_field": b(1, "a") + u(100, 1),
    "unknown_field_in_message": chat(extra=u(9, 1)),
    "group": b"\x0b\x0c",
    "cut": (b(1, "once") + SCALARS)[:-3],
    "length_beyond_the_end": b"\x0a\xff\xff\xff\xff\x0f",
    "overlong_varint": b"\x20" + b"\x80" * 12 + b"\x01",
    "twice": b(1, "a") + b(1, "b") + f32(5, 1) + f32(5, 0),
    "choices": b(1, "a") + b(14, "seedling") + u(15, 4) + u(16, 20),
    "plain_logprobs": chat() + u(16, 0),
    "steered": b(1, "a") + f32(17, -2) + f32(18, 2) + f32(19, 1.2) + b(20, u(1, 5) + f32(2, -100)) + b(20, u(1, 6))
               + b(21, varint(5) + varint(6)) + b(22, "damn") + u(23, 3) + u(24, 1) + u(4, 9),
    "bias_twice": b(1, "a") + b(20, u(1, 5)) + b(20, u(1, 5)),
    "bias_no_number": b(1, "a") + b(20, u(1, 5) + f32(2, float("nan"))),
    "bias_above_vocabulary": b(1, "a") + b(20, u(1, 100)),
    "bias_unknown_field": b(1, "a") + b(20, u(3, 1)),
    "zero_in_bad_word": b(1, "a") + b(22, b"a\0"),
    "too_many_choices": b(1, "a") + u(15, 129),
    "too_many_logprobs": b(1, "a") + u(16, 21),
    "zero_in_model": b(1, "a") + b(14, b"m\0"),
    "model_not_utf8": b(1, "a") + b(14, b"\xff"),
}

ABORT = {
    "two": b(1, "mine") + b(1, "x" * 128),
    "none": b"",
    "empty": b(1, ""),
    "zero": b(1, b"a\0b"),
    "space": b(1, "a b"),
    "too_long": b(1, "x" * 129),
    "too_many": b(1, "x") * 1025,
    "unknown_field": b(1, "x") + u(2, 1),
    "cut": (b(1, "mine") * 3)[:-2],
    "group": b"\x0b\x0c",
}

for name, seeds in {"control": CONTROL, "result": RESULT, "generate": GENERATE, "abort": ABORT}.items():
    folder = CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    for seed, data in seeds.items():
        (folder / seed).write_bytes(data)
