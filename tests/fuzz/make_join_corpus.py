#!/usr/bin/env python3
"""make_join_corpus.py: writes tests/fuzz/corpus/join: lawful and half-lawful scripts for fuzz_join.c, for mutations to begin with."""
import pathlib

from make_step_corpus import block, number, packed, sampling, seq

OUT = pathlib.Path(__file__).resolve().parent / "corpus" / "join"
RAW, WELCOME, FORM, CONNECT, CLOSE, PLAN, DROP, WAIT = range(8)


def record(opcode, data=b""):
    return bytes([opcode, len(data)]) + data


def plan(*seqs):
    return record(PLAN, b"".join(block(3, s) for s in seqs))


def raw(kind, message):
    return record(RAW, block(kind, message))


JOIN = record(WELCOME, b"\x03") + record(FORM) + record(CONNECT)
PROMPT = seq(1, 0, [5, 6, 7], [2], sample=sampling(n_logprobs=2))

SCRIPTS = {
    "lawful": JOIN + plan(PROMPT) + plan() + record(CLOSE) + record(FORM) + record(CONNECT) + plan(PROMPT),
    "again": JOIN + record(DROP) + record(WAIT) + JOIN + plan(PROMPT),
    "refused": JOIN + record(DROP, b"\x01") + record(WAIT) + JOIN,
    "early": record(FORM) + record(CONNECT) + record(CLOSE) + record(WAIT) + JOIN,
    "twice": JOIN + record(WELCOME) + record(WAIT) + record(WELCOME) + record(FORM) + record(FORM) + record(CONNECT),
    "bad-plan": JOIN + plan(seq(9, 0, [1])) + record(CLOSE) + record(FORM) + record(CONNECT) + plan(PROMPT),
    "raw-form": record(WELCOME) + raw(2, number(1, 9) + number(3, 4) + number(5, 1)) + record(CLOSE),
    "raw-close": JOIN + raw(4, number(1, 1) + block(2, b"why not")) + record(FORM) + record(CONNECT),
    "raw-connect": record(WELCOME) + record(FORM) + raw(3, number(1, 1) + block(2, b"a") + block(2, b"b")) + record(WAIT),
    "leave": JOIN + raw(5, block(1, b"go")),
    "decode": JOIN + plan(PROMPT) + plan(seq(1, 3, [], sample=sampling(0.7), from_slot=True)) + plan(seq(1, 4, [3])),
    "packed": JOIN + record(PLAN, packed(9, [1, 2, 3])),
}

if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    for name, script in SCRIPTS.items():
        (OUT / name).write_bytes(script)
