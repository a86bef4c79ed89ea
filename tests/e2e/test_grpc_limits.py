"""test_grpc_limits.py: clients that go too far on the gRPC port: they are sent away, the others are served, and nothing stays behind."""
import concurrent.futures
import contextlib
import os
import re
import resource
import socket
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1 import health_pb2_grpc

from cluster import Cluster, wait_for
from test_grpc_reflection import generate_method

GENERATE = "/moesaic.v1.Generate/Generate"


@pytest.fixture(scope="module")
def one():
    """A cluster whose connections are asked to leave after three seconds."""
    with Cluster(workers=1, leader_flags=["--grpc-max-connection-age", "3"]) as running:
        yield running


def connect(cluster, **options):
    options = {"grpc.use_local_subchannel_pool": 1, **options}
    return grpc.insecure_channel(f"127.0.0.1:{cluster.port_of('grpc listening')}",
                                 options=[(key.replace("__", "."), value) for key, value in options.items()])


def check(channel, **kwargs):
    return health_pb2_grpc.HealthStub(channel).Check(pb.HealthCheckRequest(), timeout=20, **kwargs).status


def code_of(call):
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code()


def quiet(cluster):
    m = cluster.metric
    return (m("vllm:num_requests_running") == 0 and m("vllm:num_requests_waiting") == 0
            and m("moesaic_requests_admitted") == 0 and m("moesaic_grpc_calls_in_flight") == 0)


def resident(cluster):
    return cluster.metric("process_resident_memory_bytes")


def test_a_message_beyond_all_memory_is_refused_while_it_comes(cluster):
    """Health needs no key, so anyone may try. gRPC's limit alone would let the whole gigabyte in first."""
    before, peak = resident(cluster), 0
    with connect(cluster, grpc__max_send_message_length=-1) as channel:
        call = channel.unary_unary("/grpc.health.v1.Health/Check").future(b"x" * (1 << 30), timeout=120)
        while not call.done():
            peak = max(peak, resident(cluster))
        assert call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert check(channel) == pb.HealthCheckResponse.SERVING
    assert peak < before + (700 << 20)


def test_a_client_that_pings_all_the_time_is_sent_away_alone(cluster):
    with (connect(cluster, grpc__keepalive_time_ms=100, grpc__keepalive_permit_without_calls=1,
                  grpc__http2__max_pings_without_data=0) as rude, connect(cluster) as polite):
        calls = [health_pb2_grpc.HealthStub(channel).Watch(pb.HealthCheckRequest()) for channel in (rude, polite)]
        for call in calls:
            next(call)
        assert code_of(lambda: next(calls[0])) == grpc.StatusCode.UNAVAILABLE
        assert calls[1].is_active()
        calls[1].cancel()


def test_metadata_has_a_limit(cluster):
    with connect(cluster) as channel:
        assert check(channel, metadata=[("x-long", "a" * 8000)]) == pb.HealthCheckResponse.SERVING
        code = code_of(lambda: check(channel, metadata=[("x-long", "a" * 40000)]))
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_calls_that_never_ask_do_not_stand_in_others_way(cluster):
    with connect(cluster) as silent, connect(cluster) as channel:
        hold = concurrent.futures.Future()
        calls = [silent.stream_stream(GENERATE)(iter(hold.result, None)) for _ in range(300)]
        generate, ask = generate_method(channel)
        assert list(generate(ask(text="Once", max_tokens=5), timeout=60))[-1].finish_reason
        for call in calls:
            call.cancel()
        hold.set_result(None)
    wait_for("quiet", lambda: quiet(cluster))


def test_ten_thousand_calls_that_leave_at_once_leave_nothing(cluster):
    with connect(cluster) as channel:
        generate, ask = generate_method(channel)
        long = ask(text="Once upon a time", max_tokens=1900, ignore_eos=True)

        def cycles(n):
            for i in range(n):
                call = generate(long, timeout=60)
                if i % 50 == 0:
                    with contextlib.suppress(grpc.RpcError):
                        next(call)
                call.cancel()
        cycles(500)
        wait_for("quiet", lambda: quiet(cluster))
        before = resident(cluster)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(cycles, [2500] * 4))
        wait_for("quiet", lambda: quiet(cluster), 60)
        assert resident(cluster) < before + (64 << 20)
        assert cluster.check_accounts() == "ok"
        assert check(channel) == pb.HealthCheckResponse.SERVING


def test_a_flood_of_connections_takes_neither_all_descriptors_nor_the_service(one):
    """gRPC's library stops listening for good when a connection cannot be accepted."""
    pid, port = one.leader.popen.pid, one.port_of("grpc listening")
    used = len(os.listdir(f"/proc/{pid}/fd"))
    old = resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 200, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))
    sockets = []
    try:
        for _ in range(300):
            sockets.append(socket.create_connection(("127.0.0.1", port), timeout=20))
        wait_for("a full house", lambda: len(os.listdir(f"/proc/{pid}/fd")) >= used + 60)
        assert one.ready()  # HTTP has what it needs
        assert len(os.listdir(f"/proc/{pid}/fd")) <= used + 150
        wait_for("its line", lambda: re.search(rf"connections closed port {port} count \d+ reason", one.leader.log()))
        assert one.leader.log().count("connections closed") <= 3  # not one for each
    finally:
        for s in sockets:
            s.close()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, old)
    with connect(one) as channel:
        wait_for("room", lambda: len(os.listdir(f"/proc/{pid}/fd")) < used + 10)
        assert check(channel) == pb.HealthCheckResponse.SERVING


def test_an_old_connection_takes_no_more_calls_and_keeps_those_it_has(one):
    with connect(one) as channel:
        seen = []
        channel.subscribe(seen.append)
        stub = health_pb2_grpc.HealthStub(channel)
        call = stub.Watch(pb.HealthCheckRequest())
        next(call)
        wait_for("goodbye", lambda: grpc.ChannelConnectivity.IDLE in seen[seen.index(grpc.ChannelConnectivity.READY):]
                 if grpc.ChannelConnectivity.READY in seen else False)
        assert call.is_active()
        assert check(channel) == pb.HealthCheckResponse.SERVING  # over a new connection
        time.sleep(1)
        assert call.is_active()
        call.cancel()
