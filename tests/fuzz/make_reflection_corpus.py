#!/usr/bin/env python3
"""Writes the seeds of fuzz_reflection: each question of gRPC's reflection, and some that are spoilt."""
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent / "corpus" / "reflection"


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def u(field, n):
    return varint(field << 3) + varint(n)


def b(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


NAME = "moesaic.v1.GenerateRequest"
SEEDS = {
    "nothing": b"",
    "file": b(1, "host") + b(3, "generate.proto"),
    "symbol": b(4, NAME),
    "method": b(4, "moesaic.v1.Generate.Generate"),
    "enum_value": b(4, "grpc.health.v1.HealthCheckResponse.SERVING"),
    "missing": b(4, "moesaic.v1.Nothing"),
    "extension": b(5, b(1, NAME) + u(2, 100)),
    "empty_extension": b(5, b""),
    "two_extensions": b(5, b(1, NAME)) + b(5, u(2, 7)),
    "extension_numbers": b(6, NAME),
    "services": b(7, "*"),
    "two_questions": b(7, "*") + b(4, NAME),
    "unknown_field": b(7, "*") + u(100, 1),
    "many_unknown_fields": b(7, "*") + u(15, 1) * 300,
    "not_utf8": b(4, b"\xff\xfe"),
    "host_not_utf8": b(1, b"\x80") + b(7, ""),
    "zero_inside": b(4, b"moesaic.v1.Generate\0x"),
    "cut": b(4, NAME)[:-3],
    "overlong_length": b"\x22\xff\xff\xff\xff\x0f",
    "wrong_type": u(4, 1),
}


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, data in SEEDS.items():
        (FOLDER / name).write_bytes(data)


if __name__ == "__main__":
    main()
