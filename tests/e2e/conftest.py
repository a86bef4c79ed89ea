"""conftest.py: one cluster of two workers shared by the tests that do not hurt it.

With pytest-xdist each of its processes runs whole files, with a cluster and a temporary folder of its own.
"""
import tempfile

import openai
import pytest

from cluster import Cluster
from grpc_client import connect, load_stubs


def pytest_configure(config):
    config.addinivalue_line("markers", "soak: has a long form, of SOAK_MINUTES minutes, which `make soak` runs")
    config.addinivalue_line("markers", "alone: needs the machine for itself: tests/run.py runs nothing beside it")


@pytest.fixture(scope="session", autouse=True)
def folders_of_clusters(tmp_path_factory):
    """What tempfile makes stands in the folder that pytest keeps of this run."""
    before, tempfile.tempdir = tempfile.tempdir, str(tmp_path_factory.mktemp("made", numbered=False))
    yield
    tempfile.tempdir = before


@pytest.fixture(scope="session")
def cluster():
    with Cluster(workers=2) as running:
        yield running


@pytest.fixture
def client(cluster):
    with openai.OpenAI(base_url=cluster.url + "/v1", api_key="none", max_retries=0, timeout=120) as made:
        yield made


@pytest.fixture(scope="session")
def stubs(tmp_path_factory):
    return load_stubs(tmp_path_factory.mktemp("stubs"))


@pytest.fixture
def rpc(stubs, cluster):
    with connect(stubs, cluster) as client:
        yield client
