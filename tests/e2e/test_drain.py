"""test_drain.py: SIGTERM of a leader or a worker: what runs goes on to its end, what comes is told to go elsewhere."""
import json
import re
import signal
import socket
import threading

import pytest
import requests

from cluster import Cluster, Process, Reader, wait_for

CHAT = "/v1/chat/completions"
FEW = ["--max-num-seqs", "3"]  # a worker: with 12 clients of 2 workers, 6 wait
# What a test wants to see end by itself must not be cut by the 25 s of an unset --shutdown-timeout, which a busy machine needs for it.
DRAIN_S = 150
PATIENT = ["--shutdown-timeout", str(DRAIN_S)]
TOKENS = 1500
HI = {"messages": [{"role": "user", "content": "hi"}]}


def start_streams(cluster, n=12, max_tokens=TOKENS):
    readers = [Reader(cluster.url, i, max_tokens) for i in range(n)]
    wait_for("admission", lambda: cluster.metric("moesaic_requests_admitted") == n)
    wait_for("tokens", lambda: sum(len(r.events) > 2 for r in readers) >= min(n, 6))
    return readers


def join(readers, seconds=DRAIN_S):
    for reader in readers:
        reader.join(seconds)
        assert not reader.is_alive()


def assert_refused(response):
    assert response.status_code == 503
    assert int(response.headers["Retry-After"]) >= 1
    assert response.json()["error"]["type"] == "server_error"


def errors_of(process):
    return [line for line in process.log().split("\n") if line.split(" ")[1:2] == ["error"]]


def not_ready(cluster):
    """What /ready says as soon as it says no."""
    def ask():
        response = requests.get(cluster.url + "/ready")
        return response.json() if response.status_code == 503 else None
    return wait_for("not ready", ask)


def gone(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) != 0


# --- the leader


def test_a_leader_that_is_asked_to_stop_finishes_what_runs_and_waits_and_refuses_the_rest():
    with Cluster(workers=2, leader_flags=[*FEW, *PATIENT]) as cluster:
        idle = requests.Session()  # an open connection that was served before
        assert idle.get(cluster.url + "/ready").status_code == 200
        readers = start_streams(cluster)
        cluster.leader.send(signal.SIGTERM)
        wait_for("stopping", lambda: "stopping after" in cluster.leader.log())
        ready = not_ready(cluster)
        assert ready["state"] == "the server is shutting down"
        assert requests.get(cluster.url + "/health").status_code == 200
        for ask in (cluster.post, lambda path, body: idle.post(cluster.url + path, json=body)):
            refused = ask(CHAT, HI)
            assert_refused(refused)
            assert refused.headers["Connection"] == "close"
        assert any(r.is_alive() for r in readers), "the drain was over before it was looked at"
        join(readers)
        assert all(r.complete() for r in readers), [(r.status, r.failure, r.events[-2:]) for r in readers if not r.complete()]
        assert cluster.leader.wait() == 0
        assert gone(cluster.port)
        assert "accounts ok" in cluster.leader.log()
        assert errors_of(cluster.leader) == []
        serves_again_with_kept_weights(cluster)


def serves_again_with_kept_weights(cluster):
    """The workers were told, wait, and join the next leader without loading anew."""
    for worker in cluster.workers:
        wait_for("farewell", lambda w=worker: re.search("keeps its weights reason .*the leader stops", w.log()))
        assert worker.alive() and errors_of(worker) == []
    command = [*cluster.leader.popen.args]
    for flag, port in (("--port", cluster.port), ("--control-port", cluster.control_port)):
        command[command.index(flag) + 1] = str(port)
    cluster.leader.end()
    cluster.leader = Process("leader-2", command, cluster.folder)
    cluster.wait_ready()
    assert cluster.chat("What is the capital of Kenya?")["choices"][0]["message"]["content"] == "The capital of Kenya is Nairobi."
    assert all(worker.log().count(" loading") == 1 for worker in cluster.workers)


def test_what_is_not_done_at_the_end_of_the_leaders_time_is_told_so():
    with Cluster(workers=2, leader_flags=[*FEW, "--shutdown-timeout", "0.5"]) as cluster:
        whole = []
        body = {**HI, "max_tokens": 1900, "n": 3, "ignore_eos": True}
        asker = threading.Thread(target=lambda: whole.append(cluster.post(CHAT, body)))
        readers = start_streams(cluster, 6, 1900)
        asker.start()
        wait_for("admission", lambda: cluster.metric("moesaic_requests_admitted") == 9)
        cluster.leader.send(signal.SIGTERM)
        join([*readers, asker])
        assert_refused(whole[0])
        for reader in readers:
            assert reader.failure is None and reader.events[-1] == "data: [DONE]"
            assert json.loads(reader.events[-2][6:])["error"]["type"] == "server_error"
        assert cluster.leader.wait() == 0
        assert "accounts ok" in cluster.leader.log()


# --- a worker


def test_a_worker_that_is_asked_to_stop_breaks_no_stream_and_the_queue_waits_for_its_return():
    with Cluster(workers=2, leader_flags=FEW, worker_flags=PATIENT) as cluster:
        readers = start_streams(cluster)
        victim = cluster.workers[1]
        victim.send(signal.SIGTERM)
        ready = not_ready(cluster)
        assert "leave when the running requests have ended" in ready["state"]
        assert_refused(cluster.post(CHAT, HI))
        assert victim.wait(DRAIN_S) == 0
        assert sum(r.is_alive() for r in readers) == 6, "those that waited still wait"
        assert "1 of 2 workers" in requests.get(cluster.url + "/ready").json()["state"]
        assert cluster.metric("vllm:num_requests_waiting") == 6
        assert_refused(cluster.post(CHAT, HI))  # nobody knows whether another worker comes
        victim.end()
        cluster.workers[1] = cluster.start_worker()
        join(readers)
        assert all(r.complete() for r in readers), [(r.status, r.failure, r.events[-2:]) for r in readers if not r.complete()]
        cluster.wait_ready()
        assert cluster.check_accounts() == "ok"
        for process in [cluster.leader, victim, cluster.workers[0]]:
            assert errors_of(process) == []


@pytest.mark.parametrize("flags, signals", [(["--shutdown-timeout", "0.5"], 1), ([], 2)], ids=["time is over", "second signal"])
def test_a_workers_drain_has_an_end(flags, signals):
    with Cluster(workers=2, leader_flags=FEW, worker_flags=flags) as cluster:
        readers = start_streams(cluster, 6, 1900)
        victim = cluster.workers[0]
        victim.send(signal.SIGTERM)
        wait_for("drain", lambda: "worker drains" in cluster.leader.log())
        for _ in range(signals - 1):
            victim.send(signal.SIGTERM)
        assert victim.wait(20) == 0
        wait_for("not ready", lambda: not cluster.ready(), 10)
        assert any(r.is_alive() for r in readers), "the streams had ended before the drain had"
        victim.end()
        cluster.workers[0] = cluster.start_worker()
        join(readers)
        assert all(r.complete() for r in readers), [(r.status, r.failure, r.events[-2:]) for r in readers if not r.complete()]
        cluster.wait_ready()
        assert cluster.check_accounts() == "ok"


def test_a_worker_that_serves_nothing_leaves_at_once():
    with Cluster(workers=1) as cluster:
        cluster.workers[0].send(signal.SIGTERM)
        assert cluster.workers[0].wait(10) == 0
        assert errors_of(cluster.leader) == []
        lonely = cluster.start_worker()
        wait_for("ready again", cluster.ready)
        cluster.leader.end()
        wait_for("loss", lambda: "lost the leader" in lonely.log())
        lonely.send(signal.SIGTERM)
        assert lonely.wait(10) == 0
        lonely.end()


def test_a_whole_group_that_is_asked_to_stop_finishes_what_runs_and_waits():
    with Cluster(workers=2, leader_flags=[*FEW, *PATIENT], worker_flags=PATIENT) as cluster:
        readers = start_streams(cluster)
        for process in [*cluster.workers, cluster.leader]:  # as when a pod group is deleted
            process.send(signal.SIGTERM)
        join(readers)
        assert all(r.complete() for r in readers), [(r.status, r.failure, r.events[-2:]) for r in readers if not r.complete()]
        for process in [cluster.leader, *cluster.workers]:
            assert process.wait(30) == 0
            assert errors_of(process) == []
