"""test_priority.py: with --scheduling-policy priority the lowest value is served first, over HTTP and gRPC."""
import threading

from cluster import Cluster, Reader, wait_for
from grpc_client import Client

LONG = {"max_tokens": 500, "ignore_eos": True}  # so that the ends of two of them are well apart


def test_the_lowest_priority_of_those_that_wait_is_served_first(stubs):
    flags = ["--scheduling-policy", "priority", "--max-num-seqs", "1"]
    with Cluster(workers=1, leader_flags=flags) as cluster:
        ended = []
        client = Client(stubs, cluster.grpc_port)

        def over_http(name, **fields):
            cluster.chat("Who are you?", **LONG, **fields)
            ended.append(name)

        def over_grpc(name, **fields):
            client.ask(chat="Who are you?", **LONG, **fields)
            ended.append(name)

        long = Reader(cluster.url, 1)
        wait_for("tokens", lambda: len(long.events) > 3)
        waiting = []
        for target, name, fields in ((over_http, "late", {"priority": 3}), (over_http, "plain", {}), (over_grpc, "urgent", {"priority": -2}),
                                     (over_http, "first", {"priority": -7})):
            waiting.append(threading.Thread(target=target, args=(name,), kwargs=fields))
            waiting[-1].start()
            wait_for("queue", lambda: cluster.metric("vllm:num_requests_waiting") == len(waiting))
        assert long.is_alive(), "nothing had to wait"
        for thread in [*waiting, long]:
            thread.join(60)
        client.channel.close()
        assert long.complete() and ended == ["first", "urgent", "plain", "late"]
        wrong = cluster.post("/v1/completions", {"model": "seedling", "prompt": "x", "priority": 2**31})
        assert wrong.status_code == 400 and wrong.json()["error"]["param"] == "priority"
