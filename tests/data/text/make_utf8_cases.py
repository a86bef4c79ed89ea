"""Writes utf8_cases.txt: bytes and what Python's bytes.decode(errors="replace") makes of them, both in hex, one pair a line.

    python make_utf8_cases.py > utf8_cases.txt
"""
import itertools
import random

EDGES = [0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xDF, 0xE0, 0xE4, 0xED, 0xEF, 0xF0, 0xF3, 0xF4, 0xF5, 0xFF]


def main():
    r = random.Random(7)
    cases = [bytes([b]) for b in EDGES] + [bytes(p) for p in itertools.product(EDGES, EDGES)]
    cases += [bytes(r.choices(EDGES, k=r.randrange(3, 12))) for _ in range(800)]
    for c in cases:
        print(c.hex(), c.decode("utf-8", errors="replace").encode().hex())


if __name__ == "__main__":
    main()
