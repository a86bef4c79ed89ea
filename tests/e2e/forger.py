"""forger.py: a client of Cluster.Join that says whatever a test puts into its mouth: workers that are forged, foreign or mad."""
import concurrent.futures
import contextlib
import importlib
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time

import grpc

from cluster import ROOT, wait_for

JOIN = "/moesaic.control.v1.Cluster/Join"
CONTROL_PROTOCOL = int(re.search(r"CONTROL_PROTOCOL (\d+)", (ROOT / "common/net/channel.h").read_text()).group(1))


def load_stubs():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}", f"--python_out={folder}",
                        "control.proto"], check=True)
        sys.path.insert(0, folder)
        try:
            return importlib.import_module("control_pb2")
        finally:
            sys.path.remove(folder)


pb = load_stubs()


def hello(build, **fields):
    """A lawful hello but for the fields given."""
    lawful = dict(protocol=CONTROL_PROTOCOL, build_id=build, host="forged 0", pid=7, arithmetic_classes=["base"], kernels="ref",
                  n_cores=1, memory_bytes=1 << 30, instance=0x1234, name="forged", wanted_rank=-1)
    return pb.JoinUp(hello=pb.Hello(**{**lawful, **fields}))


def varint(number):
    out = b""
    while number >= 128:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


class Stream:
    """One stream to the leader. What it sends may be messages or raw bytes; what it hears is in .heard."""

    def __init__(self, port, token=None):
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", options)
        self.to_send = queue.Queue()
        self.heard, self.error = [], None
        metadata = [("authorization", f"Bearer {token}")] if token is not None else None
        self.call = self.channel.stream_stream(JOIN, request_serializer=lambda b: b, response_deserializer=pb.JoinDown.FromString)(
            iter(self.to_send.get, None), metadata=metadata)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        try:
            for message in self.call:
                self.heard.append(message)
        except grpc.RpcError as e:
            self.error = e

    def say(self, *messages):
        for m in messages:
            self.to_send.put(m if isinstance(m, bytes) else m.SerializeToString())

    def wait_heard(self, kind, seconds=20):
        def find():
            if not self.reader.is_alive():
                raise RuntimeError(f"the stream ended: {self.error}")
            return next((getattr(m, kind) for m in self.heard if m.WhichOneof("kind") == kind), None)
        return wait_for(kind, find, seconds)

    def wait_end(self, seconds=20):
        """(code, text) with which the leader ended the stream."""
        self.reader.join(seconds)
        assert not self.reader.is_alive(), f"the stream still lives; heard {self.heard}"
        return (self.call.code(), self.call.details())

    def close(self):
        self.to_send.put(None)
        self.call.cancel()
        self.channel.close()


@contextlib.contextmanager
def stream(port, token=None):
    made = Stream(port, token)
    try:
        yield made
    finally:
        made.close()


def refusal(port, *messages, token=None, seconds=20):
    """What the leader says to a worker that says this: (status code, text)."""
    with stream(port, token) as s:
        s.say(*messages)
        return s.wait_end(seconds)


class Relay(grpc.GenericRpcHandler):
    """Stands between a real worker and a real leader and keeps what passes: .said by the worker, .heard by it. A test may bend
    what the worker says on its way: bend(message) is asked for each."""

    def __init__(self, port):
        self.leader_port, self.said, self.heard, self.bend = port, [], [], lambda message: message
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(8), handlers=[self])
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def service(self, details):
        return grpc.stream_stream_rpc_method_handler(self.join) if details.method == JOIN else None

    def join(self, requests, context):
        context.send_initial_metadata((("moesaic-accept", "1"),))
        with stream(self.leader_port) as up:
            threading.Thread(target=self.pass_up, args=(requests, up), daemon=True).start()
            sent = 0
            while up.reader.is_alive() or sent < len(up.heard):
                if not context.is_active():
                    return
                while sent < len(up.heard):
                    self.heard.append(up.heard[sent])
                    yield up.heard[sent].SerializeToString()
                    sent += 1
                time.sleep(0.005)
            context.abort(up.call.code(), up.call.details())

    def pass_up(self, requests, up):
        with contextlib.suppress(grpc.RpcError):
            for data in requests:
                message = self.bend(pb.JoinUp.FromString(data))
                self.said.append(message)
                up.say(message)

    def first_said(self, kind):
        return wait_for(kind, lambda: next((getattr(m, kind) for m in self.said if m.WhichOneof("kind") == kind), None))

    def close(self):
        self.server.stop(None)


def flood(port, token):
    """Thousands of streams from a few connections, until it is killed: some say nothing, some nonsense, some have no token. Prints
    how many have ended."""
    silent = [Stream(port, token) for _ in range(40)]
    channels = [grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)]) for _ in range(16)]
    calls = [c.unary_stream(JOIN, request_serializer=lambda b: b) for c in channels] * 8
    waiting, n_ended = [], 0
    while silent:
        for i, call in enumerate(calls):
            metadata = [("authorization", "Bearer " + token)] if i % 2 else None
            waiting.append(call(b"\xff" if i % 3 else b"", metadata=metadata))
        for answer in waiting[:-len(calls)]:
            answer.code()  # waits for its end
            n_ended += 1
        waiting = waiting[-len(calls):]
        print(n_ended, flush=True)


if __name__ == "__main__":
    flood(int(sys.argv[1]), sys.argv[2])
