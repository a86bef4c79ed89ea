"""test_grpc_docs.py: what docs/grpc.md says works as it stands there, the clients in Python and in C first of all."""
import json
import re
import shutil
import subprocess
import sys

import grpc
import pytest

from cluster import BUILD, ROOT, Cluster, wait_for
from grpc_client import aborted, connect, idle, joined

KENYA = "What is the capital of Kenya?"
NAIROBI = "The capital of Kenya is Nairobi."
STORY = "Once upon a time"
LONG = {"max_tokens": 1900, "ignore_eos": True, "temperature": 1}
ADDRESS = "127.0.0.1:8001"  # the page's
PAGE = (ROOT / "docs" / "grpc.md").read_text()


def blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.S)


def shell(marker):
    """The lines of the one shell block that has the marker."""
    found, = [b for b in blocks("sh") if marker in b]
    return found.strip().split("\n")


def address(cluster):
    return f"127.0.0.1:{cluster.port_of('grpc listening')}"


@pytest.fixture
def project(tmp_path):
    """A folder that looks like the project's root to a client."""
    shutil.copytree(ROOT / "proto", tmp_path / "proto")
    (tmp_path / "tests" / "e2e").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "e2e" / "generate_client.c", tmp_path / "tests" / "e2e")
    return tmp_path


def run(command, **kwargs):
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **kwargs)


# --- Python


def test_the_client_in_python_works_as_it_is(cluster, project):
    protoc, = [line for line in shell("grpc_tools.protoc") if "-m grpc_tools.protoc" in line]
    subprocess.run([sys.executable, *protoc.split()[1:]], cwd=project, check=True)
    python = "\n".join(blocks("python"))
    assert python.count(ADDRESS) == 1 and "GetLoad" in python
    done = run([sys.executable, "-c", python.replace(ADDRESS, address(cluster))], cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    assert NAIROBI in done.stdout and "tokens/s" in done.stdout


def test_the_service_config_makes_clients_try_again(stubs):
    config, = blocks("json")
    options = [("grpc.service_config", json.dumps(json.loads(config)))]
    with Cluster(workers=1, leader_flags=["--max-num-queued-reqs", "1"]) as cluster, connect(stubs, cluster) as rpc:
        first = rpc.call(text=STORY, **LONG)
        next(first)
        with grpc.insecure_channel(rpc.address, options=options) as channel:
            call = stubs[1].GenerateStub(channel).Generate(rpc.request(text=STORY, max_tokens=2, ignore_eos=True), timeout=60)
            wait_for("a refusal", lambda: cluster.metric("vllm:admission_rejections_total", reason="queue_full") >= 1)
            first.cancel()
            assert len(joined(call).ids) == 2


# --- C


def test_the_client_in_c_builds_and_answers_as_the_page_says(cluster, project):
    *build, ask = shell("generate_client.c")
    for line in build:
        subprocess.run(line, shell=True, cwd=project, check=True)
    assert ADDRESS in ask
    done = run(ask.replace(ADDRESS, address(cluster)), shell=True, cwd=project)
    assert (done.returncode, done.stdout) == (0, NAIROBI)
    assert "stop after" in done.stderr


def ask_in_c(cluster, *flags, question=KENYA):
    return run([BUILD / "generate_client", "-a", address(cluster), *flags, question])


def test_the_client_in_c_obeys_its_limits(cluster):
    before = aborted(cluster)
    done = ask_in_c(cluster, "-m", "3")
    assert (done.returncode, "length after 3 tokens" in done.stderr) == (0, True)
    done = ask_in_c(cluster, "-t", "0.001")
    assert (done.returncode, "status 4:" in done.stderr) == (1, True)
    done = ask_in_c(cluster, "-m", "5000")
    assert (done.returncode, "status 3:" in done.stderr, "max_tokens" in done.stderr) == (1, True, True)
    wait_for("quiet", lambda: idle(cluster), 20)
    assert aborted(cluster) <= before + 1


def test_the_client_in_c_sends_its_key(tmp_path):
    key = tmp_path / "key"
    key.write_text("correct-horse\n")
    with Cluster(workers=1, leader_flags=["--api-key-file", key]) as cluster:
        done = ask_in_c(cluster, "-k", key)
        assert (done.returncode, done.stdout) == (0, NAIROBI)
        done = ask_in_c(cluster)
        assert (done.returncode, "status 16:" in done.stderr) == (1, True)
