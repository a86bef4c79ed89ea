"""test_kill.py: a worker is killed under load: clients hear it once and soon, and the group comes back with the same answers."""
import json
import signal
import time

import pytest
import requests

from cluster import Cluster, Reader, wait_for

CHAT = "/v1/chat/completions"
QUESTIONS = ["What is the capital of Kenya?", "Who are you?", "What is expert prefetch?"]


def digests(cluster):
    return [cluster.chat(q)["choices"][0]["digest"] for q in QUESTIONS]


@pytest.mark.parametrize("victim", [0, 1])
def test_killed_worker_is_one_error_a_client_and_comes_back(victim):
    with Cluster(workers=2) as cluster:
        before = digests(cluster)
        readers = [Reader(cluster.url, i) for i in range(12)]
        wait_for("streams", lambda: all(len(r.events) > 3 for r in readers))
        cluster.workers[victim].send(signal.SIGKILL)
        cluster.workers[victim].wait()
        wait_for("not ready", lambda: not cluster.ready(), 10)
        detected = time.monotonic()
        for reader in readers:
            reader.join(20)
            assert not reader.is_alive()
            assert reader.failure is None
            assert reader.ended_at < detected + 5
            assert reader.events[-1] == "data: [DONE]"
            errors = [e for e in reader.events if '"error"' in e]
            assert len(errors) == 1 and reader.events[-2] == errors[0]
            assert json.loads(errors[0][6:])["error"]["type"] == "server_error"
        assert requests.get(cluster.url + "/health").status_code == 200
        refused = cluster.post(CHAT, {"model": "seedling", "messages": [{"role": "user", "content": "hi"}]})
        assert refused.status_code == 503
        assert refused.json()["error"]["type"] == "server_error"
        cluster.workers[victim].end()
        cluster.workers[victim] = cluster.start_worker()
        cluster.wait_ready()
        assert digests(cluster) == before
        assert cluster.check_accounts() == "ok"
        assert cluster.metric("vllm:kv_cache_usage_perc") == 0


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
