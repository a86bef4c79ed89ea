"""test_hangup.py: 500 clients hang up at random points; nothing of them stays."""
import concurrent.futures
import json
import os
import random
import socket
import time

from cluster import Cluster, wait_for

CLIENTS = 250  # a storm; there are two
TOGETHER = 40
CHAT = "/v1/chat/completions"


def request_bytes(seed, streaming):
    text = "Tell me a story about a fox." + " And about a hen." * (seed % 3 * 100)  # some prompts take several steps
    body = json.dumps({"model": "seedling", "messages": [{"role": "user", "content": text}],
                       "stream": streaming, "temperature": 1, "seed": seed, "max_tokens": 400, "ignore_eos": True}).encode()
    return f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def hang_up(port, seed):
    """Leaves before the request is complete, while it waits or runs unstreamed, or after some bytes of the stream."""
    draw = random.Random(seed)
    request = request_bytes(seed, streaming=draw.random() < 0.8)
    kind = draw.choice(["part", "wait", "read", "read", "read"])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
        s.settimeout(2)
        s.sendall(request[:draw.randrange(1, len(request))] if kind == "part" else request)
        if kind == "wait":
            time.sleep(draw.random() * 0.2)
        wanted = draw.randrange(1, 20000) if kind == "read" else 0
        try:
            while wanted > 0:
                got = s.recv(4096)
                if not got:
                    break
                wanted -= len(got)
        except TimeoutError:
            pass  # an answer that is not streamed says nothing for a while


def settled(cluster):
    m = cluster.metric
    return (m("vllm:num_requests_running") == 0 and m("vllm:num_requests_waiting") == 0
            and m("vllm:kv_cache_usage_perc") == 0 and m("moesaic_requests_admitted") == 0
            and m("moesaic_http_requests_in_flight") == 1)  # the one that asks


def storm(cluster, first_seed):
    with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
        list(pool.map(lambda i: hang_up(cluster.port, first_seed + i), range(CLIENTS)))
    wait_for("quiet", lambda: settled(cluster), 30)


def test_clients_that_hang_up_leave_nothing_behind():
    seed = int(os.environ.get("SEED", random.randrange(1 << 30)))
    print(f"SEED={seed}")
    with Cluster(workers=2, leader_flags=["--max-num-seqs", "8"]) as cluster:
        before = cluster.chat("What is the capital of Kenya?")["choices"][0]
        storm(cluster, seed)  # the first fills pools and caches
        descriptors = cluster.metric("process_open_fds")
        memory = cluster.metric("process_resident_memory_bytes")
        aborted = cluster.metric("vllm:request_success_total", finished_reason="abort")
        assert aborted > 0
        storm(cluster, seed + CLIENTS)
        assert cluster.check_accounts() == "ok"
        wait_for("descriptors", lambda: cluster.metric("process_open_fds") <= descriptors + 2)
        assert cluster.metric("process_resident_memory_bytes") <= memory + (8 << 20)
        after = cluster.chat("What is the capital of Kenya?")["choices"][0]
        assert (after["digest"], after["message"]) == (before["digest"], before["message"])
        for process in [cluster.leader, *cluster.workers]:
            assert process.alive()
