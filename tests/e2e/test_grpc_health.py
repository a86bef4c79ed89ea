"""test_grpc_health.py: grpc.health.v1 with grpcio-health-checking's stubs: what a probe or a balancer sees through a cluster's life."""
import contextlib
import ctypes
import os
import signal
import threading
import time

import grpc
import pytest
import requests
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1 import health_pb2_grpc

from cluster import LIBC, Cluster, wait_for
from test_grpc_reflection import generate_method

SERVING = pb.HealthCheckResponse.SERVING
NOT_SERVING = pb.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = pb.HealthCheckResponse.SERVICE_UNKNOWN
NAMES = ["", "moesaic.v1.Generate", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
         "grpc.reflection.v1alpha.ServerReflection"]


class Health:
    def __init__(self, cluster):
        self.channel = grpc.insecure_channel(f"127.0.0.1:{cluster.port_of('grpc listening')}",
                                             options=[("grpc.use_local_subchannel_pool", 1)])
        self.stub = health_pb2_grpc.HealthStub(self.channel)

    def check(self, service=""):
        return self.stub.Check(pb.HealthCheckRequest(service=service), timeout=20).status


@contextlib.contextmanager
def connect(cluster):
    health = Health(cluster)
    with health.channel:
        yield health


class Watch:
    """A Watch in a thread of its own: every state with the moment it came."""

    def __init__(self, health, service=""):
        self.heard, self.error = [], None
        self.call = health.stub.Watch(pb.HealthCheckRequest(service=service))
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        try:
            for message in self.call:
                self.heard.append((message.status, time.monotonic()))
        except grpc.RpcError as error:
            self.error = error

    def states(self):
        return [status for status, _ in self.heard]

    def wait(self, states, seconds=30):
        wait_for(f"states {states}", lambda: self.states() == states, seconds)


@pytest.fixture
def health(cluster):
    with connect(cluster) as made:
        yield made


def test_a_ready_group_serves_under_every_name(health):
    assert [health.check(name) for name in NAMES] == [SERVING] * len(NAMES)
    statuses = health.stub.List(pb.HealthListRequest(), timeout=20).statuses
    assert set(NAMES) <= set(statuses)
    assert {s.status for s in statuses.values()} == {SERVING}


def test_an_unknown_service_is_not_found_and_may_be_watched(health):
    with pytest.raises(grpc.RpcError) as caught:
        health.check("moesaic.v1.Nothing")
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    watch = Watch(health, "moesaic.v1.Nothing")
    watch.wait([SERVICE_UNKNOWN])
    assert watch.call.is_active()
    watch.call.cancel()


def test_a_client_that_checks_health_itself_connects(cluster):
    """gRFC A17: with this service config a channel is ready only when Watch says so."""
    config = '{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": "moesaic.v1.Generate"}}'
    with grpc.insecure_channel(f"127.0.0.1:{cluster.port_of('grpc listening')}",
                               options=[("grpc.service_config", config), ("grpc.use_local_subchannel_pool", 1)]) as channel:
        grpc.channel_ready_future(channel).result(timeout=30)


def test_thousands_of_watches_are_served_and_bounded(health, cluster):
    """More than the server takes: the rest is refused at once, and those that leave make room."""
    calls, refused = [], []
    with connect(cluster) as second:  # a connection carries 4,096 calls
        calls = [(health if i % 2 else second).stub.Watch(pb.HealthCheckRequest()) for i in range(4200)]
        for call in calls:
            try:
                assert next(call).status == SERVING
            except grpc.RpcError as error:
                refused.append(error.code())
    assert refused == [grpc.StatusCode.RESOURCE_EXHAUSTED] * 104
    assert health.check() == SERVING
    for call in calls:
        call.cancel()
    def room():
        call = health.stub.Watch(pb.HealthCheckRequest())
        try:
            return next(call).status == SERVING
        except grpc.RpcError:
            return False
        finally:
            call.cancel()
    wait_for("room for a watch", room)


# --- a cluster's life


@pytest.fixture(scope="module")
def fragile():
    """A cluster of one worker for the tests that hurt it. A step counts as hanging after a quarter of its 16 s."""
    with Cluster(workers=1, leader_flags=["--step-timeout", "16", "--shutdown-timeout", "60"]) as running:
        yield running


def test_health_follows_a_worker_that_dies_and_comes_back(fragile):
    with connect(fragile) as health:
        watch = Watch(health)
        watch.wait([SERVING])
        fragile.workers[0].end()
        killed = time.monotonic()
        watch.wait([SERVING, NOT_SERVING])
        assert watch.heard[-1][1] - killed < 10
        assert health.check("moesaic.v1.Generate") == NOT_SERVING
        fragile.workers = [fragile.start_worker()]
        watch.wait([SERVING, NOT_SERVING, SERVING], 60)
        watch.call.cancel()


PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long


class Frozen:
    """with Frozen(tid): this thread of a child does not run; the others of its process do, so heartbeats go on."""

    def __init__(self, tid):
        self.tid = tid

    def __enter__(self):
        if LIBC.ptrace(PTRACE_SEIZE, self.tid, None, None) != 0:
            pytest.skip("this system does not let a process trace its child")
        assert LIBC.ptrace(PTRACE_INTERRUPT, self.tid, None, None) == 0
        os.waitpid(self.tid, 0x40000000)  # __WALL
        return self

    def __exit__(self, *_):
        assert LIBC.ptrace(PTRACE_DETACH, self.tid, None, None) == 0


LONG = {"text": "Once upon a time", "max_tokens": 1900, "ignore_eos": True, "temperature": 1}


def test_health_does_not_lie_while_a_step_is_frozen(fragile):
    """The worker's heartbeats go on and the group is not lost, but nothing is served."""
    with connect(fragile) as health:
        generate, ask = generate_method(health.channel)
        watch = Watch(health)
        watch.wait([SERVING])
        call = generate(ask(**LONG), timeout=120)
        next(call)
        with Frozen(fragile.workers[0].popen.pid):  # the main thread runs the steps
            watch.wait([SERVING, NOT_SERVING])
            assert health.check("moesaic.v1.Generate") == NOT_SERVING
            ready = requests.get(fragile.url + "/ready", timeout=20)
            assert (ready.status_code, ready.json()["state"]) == (503, "a step takes too long")
        watch.wait([SERVING, NOT_SERVING, SERVING])
        assert list(call)[-1].finish_reason == "length"  # it was a pause, no loss
        watch.call.cancel()
        assert fragile.check_accounts() == "ok"


def test_a_drain_says_so_first_and_lets_streams_end(fragile):
    """Health tells, new calls are sent elsewhere, running ones end as if nothing was, then the connection closes."""
    with connect(fragile) as health:
        generate, ask = generate_method(health.channel)
        watch = Watch(health)
        watch.wait([SERVING])
        running = [generate(ask(**LONG, seed=i), timeout=120) for i in range(6)]
        for call in running:
            next(call)
        fragile.leader.send(signal.SIGTERM)
        watch.wait([SERVING, NOT_SERVING])
        assert health.check() == NOT_SERVING
        with pytest.raises(grpc.RpcError) as caught:
            list(generate(ask(**LONG), timeout=20))
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert int(dict(caught.value.trailing_metadata())["grpc-retry-pushback-ms"]) > 0
        assert watch.call.is_active()
        assert [list(call)[-1].finish_reason for call in running] == ["length"] * 6
        watch.thread.join(30)
        assert watch.error.code() == grpc.StatusCode.UNAVAILABLE
        assert watch.states() == [SERVING, NOT_SERVING]
        assert fragile.leader.wait(30) == 0
        assert "accounts ok" in fragile.leader.log()
