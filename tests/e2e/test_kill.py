"""test_kill.py: a worker is killed under load: streams pause and go on when the group has formed again, with the answers that they
would have had; without a group they end with one error, and soon enough."""
import concurrent.futures
import json
import re
import signal
import threading
import time

import pytest
import requests

from cluster import Cluster, Reader, wait_for
from grpc_client import connect

CHAT = "/v1/chat/completions"
QUESTIONS = ["What is the capital of Kenya?", "Who are you?", "What is expert prefetch?"]
STORY = "Tell me a story about a fox."
N_TOKENS = 1200
SEEDS = range(8)
BLOCK_BYTES = 16 * 32 * 2 * 2 * 2 * 4  # tokens, head's size, KV heads, K and V, bfloat16, layers of the embedded model


def digests(cluster):
    return [cluster.chat(q)["choices"][0]["digest"] for q in QUESTIONS]


def story(seed):
    return {"max_tokens": N_TOKENS, "ignore_eos": True, "temperature": 1, "seed": seed}


def long_digests(cluster):
    with concurrent.futures.ThreadPoolExecutor(len(SEEDS)) as pool:
        return list(pool.map(lambda seed: cluster.chat(STORY, **story(seed))["choices"][0]["digest"], SEEDS))


@pytest.fixture(scope="module")
def long(cluster):
    """The digests of the long stories where nothing happens."""
    return long_digests(cluster)


def stream_digest(reader):
    return re.search(r'"digest":"([0-9a-f]+)"', reader.events[-2]).group(1)


class Askers:
    """New short requests all the time, over HTTP and gRPC in turn, as of strangers who know nothing of a loss."""

    def __init__(self, cluster, rpc):
        self.cluster, self.rpc = cluster, rpc
        self.failures = []
        self.places = threading.Semaphore(48)  # a slow machine must not drown in them
        self.pool = concurrent.futures.ThreadPoolExecutor(48)
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.send_all, daemon=True)
        self.thread.start()

    def ask(self, number):
        try:
            if number % 2:
                assert list(self.rpc.call(chat="hi", max_tokens=2))[-1].finish_reason
            else:
                self.cluster.chat("hi", max_tokens=2)
        except Exception as e:
            self.failures.append(repr(e))
        self.places.release()

    def send_all(self):
        number = 0
        while not self.stopped.wait(0.03):
            number += 1
            if self.places.acquire(timeout=0.1):
                self.pool.submit(self.ask, number)

    def stop(self):
        self.stopped.set()
        self.thread.join()

    def failed(self):
        self.pool.shutdown()  # waits for those under way
        return self.failures


def kill(cluster, victim):
    cluster.workers[victim].send(signal.SIGKILL)
    cluster.workers[victim].end()
    wait_for("not ready", lambda: not cluster.ready(), 10)


def queue_with_new(cluster, n_paused):
    """What /status says of requests once some wait that never ran; None before."""
    status = requests.get(cluster.url + "/status").json()["requests"]
    return status if status["waiting"] > status["resuming"] >= n_paused else None


@pytest.mark.parametrize("victim", [0, 1])
def test_killed_worker_is_a_pause_and_no_request_is_lost(victim, stubs, long):
    with Cluster(workers=2) as cluster, connect(stubs, cluster) as rpc:
        before = digests(cluster)
        readers = [Reader(cluster.url, i, N_TOKENS) for i in SEEDS[:-1]]
        call = rpc.call(chat=STORY, **story(SEEDS[-1]))
        parts = [next(call)]
        wait_for("streams", lambda: all(len(r.events) > 3 for r in readers))
        askers = Askers(cluster, rpc)
        wait_for("an answer", lambda: cluster.metric("vllm:request_success_total") > len(before))
        kill(cluster, victim)
        assert requests.get(cluster.url + "/health").status_code == 200
        n_paused = sum(r.is_alive() for r in readers)
        assert n_paused > 0, "the streams ended before the worker did"
        status = wait_for("new requests in the queue", lambda: queue_with_new(cluster, n_paused))
        assert status["resuming"] >= n_paused
        assert not cluster.ready()
        cluster.workers[victim] = cluster.start_worker()
        cluster.wait_ready()
        askers.stop()
        parts += list(call)
        for reader in readers:
            reader.join(60)
            assert reader.complete(), (reader.status, reader.failure, reader.events[-2:])
        assert [*map(stream_digest, readers), f"{parts[-1].digest:016x}"] == long
        assert sum(len(p.token_ids) for p in parts) == N_TOKENS
        assert askers.failed() == []
        assert digests(cluster) == before
        assert cluster.check_accounts() == "ok"
        assert cluster.metric("moesaic_replays_total") >= n_paused
        assert cluster.metric("vllm:admission_rejections_total") == 0
        assert cluster.metric("moesaic_replay_mismatches_total") == cluster.metric("moesaic_requests_lost_total") == 0
        assert cluster.metric("vllm:kv_cache_usage_perc") == 0


def test_who_waits_too_long_for_a_group_hears_one_error():
    with Cluster(workers=2, leader_flags=["--recovery-timeout", "2"]) as cluster:
        before = digests(cluster)
        readers = [Reader(cluster.url, i) for i in range(6)]
        wait_for("streams", lambda: all(len(r.events) > 3 for r in readers))
        kill(cluster, 0)
        detected = time.monotonic()
        for reader in readers:
            reader.join(20)
            assert not reader.is_alive() and reader.failure is None
            assert reader.ended_at < detected + 10
            assert reader.events[-1] == "data: [DONE]"
            errors = [e for e in reader.events if '"error"' in e]
            assert len(errors) == 1 and reader.events[-2] == errors[0]
            assert json.loads(errors[0][6:])["error"]["type"] == "server_error"
        assert cluster.metric("moesaic_requests_lost_total") == 6
        refused = cluster.post(CHAT, {"messages": [{"role": "user", "content": "hi"}]})
        assert refused.status_code == 503 and int(refused.headers["Retry-After"]) >= 1
        assert refused.json()["error"]["type"] == "server_error"
        cluster.workers[0] = cluster.start_worker()
        cluster.wait_ready()
        assert digests(cluster) == before


def test_both_workers_killed_one_after_the_other():
    with Cluster(workers=2) as cluster:
        before = digests(cluster)
        for victim in (0, 1):
            cluster.workers[victim].send(signal.SIGKILL)
            cluster.workers[victim].end()
        wait_for("not ready", lambda: not cluster.ready(), 10)
        cluster.workers = [cluster.start_worker() for _ in range(2)]
        cluster.wait_ready()
        assert digests(cluster) == before


def test_a_load_of_twice_the_kv_blocks_gives_the_same_digests(long):
    memory = len(SEEDS) // 2 * (N_TOKENS // 16 + 4) // 2 * BLOCK_BYTES  # half of what fills up on a worker
    with Cluster(workers=2, leader_flags=["--kv-cache-memory", str(memory)]) as cluster:
        assert long_digests(cluster) == long
        assert cluster.metric("vllm:num_preemptions_total") > 0
        assert cluster.metric("moesaic_replay_mismatches_total") == 0
        assert cluster.check_accounts() == "ok"
