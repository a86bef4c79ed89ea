"""conftest.py: one cluster of two workers shared by the tests that do not hurt it."""
import openai
import pytest

from cluster import Cluster
from grpc_client import connect, load_stubs


def pytest_configure(config):
    config.addinivalue_line("markers", "soak: has a long form, of SOAK_MINUTES minutes, which `make soak` runs")


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
