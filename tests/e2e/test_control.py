"""test_control.py: the control plane against workers that lie, double, flood or freeze, leaders that vanish, names that come
late and clocks that jump. Forged workers are raw gRPC streams (forger.py); everything else is the real processes."""
import concurrent.futures
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import pytest
import requests

import forger
from cluster import BUILD, MODEL, Cluster, Process, wait_for
from forger import hello, pb, refusal, stream

CHAT = "/v1/chat/completions"
TOKEN = "let-me-in"


@pytest.fixture(scope="module")
def build():
    """The build id that a lawful hello carries."""
    out = subprocess.run([BUILD / "moe-leader", "--version"], capture_output=True, text=True, check=True).stdout
    return out.split()[-1]


@pytest.fixture(scope="module")
def token_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("token") / "token"
    path.write_text(TOKEN + "\n")
    return str(path)


@pytest.fixture(scope="module")
def guarded(token_file):
    """A running group that asks for a token. No test here may hurt it."""
    with Cluster(workers=2, leader_flags=["--control-token-file", token_file],
                 worker_flags=["--control-token-file", token_file]) as running:
        yield running


class Story(threading.Thread):
    """A long stream; .events grows while it lasts."""

    def __init__(self, cluster, **fields):
        super().__init__(daemon=True)
        self.url, self.events, self.failure = cluster.url, [], None
        self.body = {"messages": [{"role": "user", "content": "Tell me a story about a fox."}], "stream": True,
                     "max_tokens": 1900, "ignore_eos": True, "temperature": 1, "seed": 5, **fields}
        self.start()
        wait_for("tokens", lambda: len(self.events) > 3)

    def run(self):
        try:
            with requests.post(self.url + CHAT, json=self.body, stream=True, timeout=120) as response:
                for line in response.iter_lines():
                    if line:
                        self.events.append(line.decode())
        except requests.RequestException as e:
            self.failure = e

    def text(self):
        events = [json.loads(e[6:]) for e in self.events if e != "data: [DONE]"]
        return "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e.get("choices"))

    def assert_whole(self):
        self.join(120)
        assert not self.is_alive() and self.failure is None
        assert self.events[-1] == "data: [DONE]"
        assert not any('"error"' in e for e in self.events)

    def assert_ended_with_one_error(self):
        self.join(30)
        assert not self.is_alive() and self.failure is None
        assert self.events[-1] == "data: [DONE]"
        errors = [e for e in self.events if '"error"' in e]
        assert len(errors) == 1 and self.events[-2] == errors[0]


def lines(process, words):
    return [line for line in process.log().split("\n") if words in line]


def ready_state(cluster):
    response = requests.get(cluster.url + "/ready", timeout=5)
    return response.status_code, response.json().get("state", "")


def resident(process):
    with open(f"/proc/{process.popen.pid}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+) kB", f.read()).group(1)) << 10


# --- who may come in

def test_strangers_and_forgers_are_refused_by_name_while_the_group_serves(guarded, build):
    port, leader = guarded.control_port, guarded.leader
    alone = Story(guarded)
    alone.assert_whole()
    story = Story(guarded)
    for token in (None, "wrong", "let-me-in-too"):
        code, text = refusal(port, hello(build), token=token)
        assert code.name == "UNAUTHENTICATED" and "token" in text
    oversized = pb.JoinUp(hello=pb.Hello(host="h" * (2 << 20)))
    lie = b"\x0a" + forger.varint(4 << 30)  # a hello of 4 GB, of which nothing comes
    refused = [
        (hello("0.9"), "build 0.9 is not the leader's"),
        (hello(build, protocol=99), "control protocol 99"),
        (hello(build, arithmetic_classes=["bf16dot"]), "arithmetic class base"),
        (hello(build, wanted_rank=2), "rank 2 does not exist among 2"),
        (hello(build, wanted_rank=-9), "rank -9 does not exist"),
        (hello(build, memory_bytes=1 << 63), "hello.memory_bytes 9223372036854775808"),
        (hello(build, n_cores=0xffffffff), "hello.n_cores"),
        (hello(build, name="n" * 100000), "hello.name has 100000 bytes"),
        (hello(build, host="h" * 500000), "hello.host has 500000 bytes"),
        (hello(build, kernels="k" * 50), "hello.kernels"),
        (hello(build, arithmetic_classes=["base"] * 10000), "hello.arithmetic_classes 10000"),
        (hello(build, has_weights=True, held_n_ranks=0), "hello.held_rank 0 does not exist among 0"),
        (hello(build, held_n_ranks=4096), "hello.held_n_ranks 4096"),
        (hello(build), "all 2 ranks are taken"),
        (hello(build, wanted_rank=0), "all 2 ranks are taken"),
        (pb.JoinUp(ready=pb.Ready(epoch=1)), "not Hello"),
        (pb.JoinUp(formed=pb.Formed(epoch=1, address=b"x")), "not Hello"),
        (pb.JoinUp(heartbeat=pb.Heartbeat(epoch=1)), "not Hello"),
        (b"\xff\xff\xff", "malformed"), (b"", "not Hello"), (lie, "malformed"),
    ]
    for message, words in refused:
        code, text = refusal(port, message, token=TOKEN)
        assert code.name == "FAILED_PRECONDITION" and words in text, text
    code, _ = refusal(port, oversized, token=TOKEN)
    assert code.name == "RESOURCE_EXHAUSTED"
    assert len(lines(leader, "worker refused")) >= 10, "the first ones have a line each"
    wait_for("the number of the others", lambda: lines(leader, "workers refused"))
    assert guarded.ready()
    story.assert_whole()
    assert story.text() == alone.text(), "the stream kept its tokens"
    assert guarded.check_accounts() == "ok"
