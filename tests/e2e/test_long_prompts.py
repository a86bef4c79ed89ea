"""test_long_prompts.py: the largest prompts beside a stream: each step of the group has the stream's token in it, and a text of 10 MB is
made to ids while the steps go on. Counted in steps, not in seconds; each step on its own is in tests/unit/leader_long_prompt.c.
"""
import json
import socket

from cluster import Reader, wait_for

TOKENS = 1900  # of the stream: it is still going when the prompts are done
IDLE_STEPS = 8  # before its first token, and what the pipeline had under way when it ended


def steps(cluster):
    return cluster.metric("moesaic_steps_total")


def n_events(reader):
    return len(reader.events)


def ended(reader):
    reader.join(120)
    return reader.complete()


def test_every_step_beside_long_prompts_has_the_streams_token(cluster):
    before = steps(cluster)
    reader = Reader(cluster.url, seed=4, max_tokens=TOKENS)
    wait_for("the stream", lambda: n_events(reader) > 2)
    for _ in range(3):
        body = {"prompt": [5] * 2047, "max_tokens": 1, "temperature": 0}
        assert cluster.post("/v1/completions", body).status_code == 200
    assert reader.ended_at is None, "the prompts were to be done before the stream"
    assert ended(reader)
    assert steps(cluster) - before <= TOKENS + IDLE_STEPS


def test_a_body_of_10_mb_is_rendered_beside_the_steps(cluster):
    words = "word " * (2 << 20)
    body = json.dumps({"prompt": words, "truncate_prompt_tokens": -1, "max_tokens": 1, "temperature": 0}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    reader = Reader(cluster.url, seed=5, max_tokens=TOKENS)
    wait_for("the stream", lambda: n_events(reader) > 2)
    with socket.create_connection(("127.0.0.1", cluster.port), timeout=120) as s:
        s.sendall(head + body)  # what is not in the socket's buffers is with the server
        begun = n_events(reader)
        assert s.recv(4096).startswith(b"HTTP/1.1 200 ")
        during = n_events(reader) - begun
    assert ended(reader)
    assert during >= 20, f"only {during} tokens came while 10 MB were rendered"
