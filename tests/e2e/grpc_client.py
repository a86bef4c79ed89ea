"""grpc_client.py: a client of proto/generate.proto for the tests of this folder, and what every stream promises."""
import contextlib
import importlib
import subprocess
import sys

import grpc
import pytest

from cluster import ROOT


def make_stubs(folder):
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}", f"--python_out={folder}",
                    f"--grpc_python_out={folder}", "generate.proto"], check=True)


def load_stubs(folder):
    make_stubs(folder)
    sys.path.insert(0, str(folder))
    return importlib.import_module("generate_pb2"), importlib.import_module("generate_pb2_grpc")


class Client:
    def __init__(self, stubs, port, key=None, credentials=None):
        self.pb, rpc = stubs
        self.address = f"127.0.0.1:{port}"
        options = [("grpc.use_local_subchannel_pool", 1)]
        self.channel = (grpc.secure_channel(self.address, credentials, options=options) if credentials is not None
                        else grpc.insecure_channel(self.address, options=options))
        self.stub = rpc.GenerateStub(self.channel)
        self.metadata = [("authorization", f"Bearer {key}")] if key is not None else None

    def request(self, chat=None, **fields):
        if chat is not None:
            fields["messages"] = [self.pb.ChatMessage(role="user", content=chat)]
        return self.pb.GenerateRequest(**fields)

    def call(self, timeout=120, **fields):
        return self.stub.Generate(self.request(**fields), timeout=timeout, metadata=self.metadata)

    def abort(self, *ids):
        return self.stub.Abort(self.pb.AbortRequest(request_ids=ids), timeout=60, metadata=self.metadata).found

    def ask(self, **fields):
        return joined(self.call(**fields))

    def choices(self, **fields):
        return told(self.call(**fields))

    def error(self, timeout=60, **fields):
        with pytest.raises(grpc.RpcError) as caught:
            list(self.call(timeout=timeout, **fields))
        return caught.value.code(), caught.value.details()


class Answer:
    pass


def one_choice(parts):
    a = Answer()
    a.parts = parts
    a.text = "".join(p.text for p in parts)
    a.ids = [i for p in parts for i in p.token_ids]
    a.logprobs = [k for p in parts for k in p.logprobs]
    a.prompt_logprobs = [k for p in parts for k in p.prompt_logprobs]
    last = parts[-1]
    assert [p.finish_reason for p in parts[:-1]] == [""] * (len(parts) - 1)
    assert last.finish_reason in ("stop", "length", "abort")
    a.finish, a.stop_reason, a.digest, a.seed = last.finish_reason, last.stop_reason, last.digest, last.seed
    a.request_id, a.n_prompt = last.request_id, last.prompt_tokens
    assert len({(p.request_id, p.seed, p.prompt_tokens) for p in parts}) == 1
    n = 0
    for p in parts:
        n += len(p.token_ids)
        assert p.completion_tokens == n
        assert len(p.logprobs) in (0, len(p.token_ids))
    assert len(a.logprobs) in (0, len(a.ids))
    return a


def told(parts):
    """A stream's choices, each as one; checks what every stream promises."""
    parts = list(parts)
    assert parts
    indices = sorted({p.index for p in parts})
    assert indices == list(range(len(indices)))
    return [one_choice([p for p in parts if p.index == i]) for i in indices]


def joined(parts):
    """The same for a stream of one choice."""
    choice, = told(parts)
    return choice


@contextlib.contextmanager
def connect(stubs, cluster, key=None):
    client = Client(stubs, cluster.port_of("grpc listening"), key)
    with client.channel:
        yield client


def idle(cluster):
    m = cluster.metric
    return (m("vllm:num_requests_running") == 0 and m("vllm:num_requests_waiting") == 0
            and m("vllm:kv_cache_usage_perc") == 0 and m("moesaic_requests_admitted") == 0
            and m("moesaic_grpc_calls_in_flight") == 0)


def aborted(cluster):
    return cluster.metric("vllm:request_success_total", finished_reason="abort")
