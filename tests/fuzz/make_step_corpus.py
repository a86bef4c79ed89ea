#!/usr/bin/env python3
"""make_step_corpus.py: writes tests/fuzz/corpus/step: good plans for fuzz_step.c, for mutations to begin with."""
import pathlib
import struct

OUT = pathlib.Path(__file__).resolve().parent / "corpus" / "step"


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value) if value else b""


def block(field, data):
    return varint(field << 3 | 2) + varint(len(data)) + data


def packed(field, values):
    return block(field, b"".join(varint(v) for v in values)) if values else b""


def sampling(temperature=0.0, top_p=1.0, top_k=0, min_p=0.0, seed=1, n_logprobs=0):
    floats = b"".join(varint(f << 3 | 5) + struct.pack("<f", v) for f, v in ((1, temperature), (2, top_p), (4, min_p)))
    return floats + number(3, top_k) + varint(5 << 3 | 1) + struct.pack("<Q", seed) + number(8, n_logprobs) + number(9, 1)


def scoring(n_rows, n_top=0, next_token=0):
    return number(1, n_rows) + number(2, n_top) + number(3, next_token)


def seq(slot, position, tokens, blocks=(), offset=0, sample=None, from_slot=False, score=None, restored=0, saved=0):
    return (number(1, slot) + number(2, position) + packed(3, tokens) + number(4, int(from_slot)) + number(5, offset)
            + packed(6, blocks) + (block(7, sample) if sample is not None else b"") + (block(9, score) if score is not None else b"")
            + number(10, restored) + number(11, saved))


def plan(step, *seqs):
    return number(1, 1) + number(2, step) + b"".join(block(3, s) for s in seqs)


def write(name, *plans):
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / name).write_bytes(b"".join(struct.pack("<H", len(p)) + p for p in plans))


write("idle", plan(1))
write("prompt_and_decode",
      plan(1, seq(0, 0, range(20), [3, 5], sample=sampling())),
      plan(2, seq(0, 20, [7], sample=sampling(0.7, 0.9, 40, 0.05, 9, 5))),
      plan(3, seq(0, 21, [], from_slot=True, sample=sampling(1.0))))
write("chunks_together",
      plan(1, seq(1, 0, range(16), [0]), seq(2, 0, range(5), [1], sample=sampling(0.5, seed=2**60))),
      plan(2, seq(1, 16, range(10), [2], 1, sample=sampling()), seq(2, 5, [], from_slot=True, sample=sampling(2.0))))
write("long", plan(1, seq(3, 0, range(40), [0, 1, 2])), plan(2, seq(3, 40, range(40), [3, 4], 3)),
      plan(3, seq(3, 80, range(20), [5, 6], 5, sample=sampling(0.0, n_logprobs=20))))
write("shared_page", plan(1, seq(0, 0, range(17), [0, 1])), plan(2, seq(1, 16, [4], [0, 2], sample=sampling())))
write("scored", plan(1, seq(0, 0, range(12), [0], score=scoring(12, 3, 9)), seq(1, 0, range(9), [1], sample=sampling(), score=scoring(8, 20))),
      plan(2, seq(0, 12, [9, 1], [], 1, sample=sampling(), score=scoring(1))))
# States: kept and begun from, by another slot and in the same plan; then of numbers that are not there, of another position, and twice.
write("snapshots", plan(1, seq(0, 0, range(16), [0], saved=1)), plan(2, seq(0, 16, range(16), [1], 1, sample=sampling(), saved=2)),
      plan(3, seq(1, 16, range(9), [0, 2], sample=sampling(), restored=1), seq(2, 0, range(16), [3], saved=1)),
      plan(4, seq(3, 32, [5], [0, 1, 4], sample=sampling(), restored=2)), plan(5, seq(3, 33, [], from_slot=True, sample=sampling())))
write("snapshots_wrong", plan(1, seq(0, 0, range(16), [0], saved=3)), plan(2, seq(1, 16, [4], [0, 1], restored=4)),
      plan(3, seq(1, 0, [4], [1], restored=3)), plan(4, seq(1, 0, range(16), [1], saved=2**32 - 1)),
      plan(5, seq(1, 0, range(16), [1], saved=1), seq(2, 0, range(16), [2], saved=1)), plan(6, seq(1, 0, range(15), [1], saved=1)),
      plan(7, seq(1, 0, [], [1], saved=1)), plan(8, seq(1, 16, [4], [0, 1], sample=sampling(), restored=2)))
