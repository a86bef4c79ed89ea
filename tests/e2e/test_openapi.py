"""test_openapi.py: the document that describes the API, and the API, say the same: schemathesis makes requests from it, right and
wrong ones, and judges every answer by it.

`make soak` goes on making requests for its minutes, from another seed each time.
"""
import json
import os
import pathlib
import random
import re
import subprocess
import sys

import pytest
import requests
from openapi_spec_validator import validate

from cluster import BUILD, ROOT, Cluster

HERE = pathlib.Path(__file__).parent
SOAK_S = int(float(os.environ.get("SOAK_MINUTES", 0)) * 60)
KEY = "a-key-of-the-test"
EXAMPLES = 10  # of each kind of request; what covers each bound of each field comes on top


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text(KEY + "\n")
    path.chmod(0o600)
    with Cluster(workers=1, leader_flags=["--api-key-file", path]) as running:
        yield running


@pytest.fixture(scope="module")
def document(keyed):
    response = requests.get(keyed.url + "/openapi.json", headers={"Authorization": f"Bearer {KEY}"}, timeout=30)
    assert response.status_code == 200 and response.headers["Content-Type"] == "application/json"
    return response.json()


def committed():
    return json.loads((ROOT / "docs" / "openapi.json").read_text())


def test_the_documents_are_openapi(document):
    validate(document)
    validate(committed())


def test_the_program_prints_the_committed_document():
    printed = subprocess.run([BUILD / "moe-leader", "--help-openapi"], capture_output=True, text=True, check=True, timeout=30).stdout
    assert printed == (ROOT / "docs" / "openapi.json").read_text(), "make docs"


def test_a_server_tells_its_own_limits(document):
    chat = document["components"]["schemas"]["ChatRequest"]["properties"]
    assert chat["model"]["enum"] == ["seedling", None]
    assert chat["max_tokens"]["maximum"] == 2047
    assert document["info"]["x-moesaic-limits"]["max_model_len"] == 2048
    assert document["paths"].keys() == committed()["paths"].keys()
    assert document["paths"]["/v1/models"]["get"]["security"] == [{"bearer": []}]
    assert document["paths"]["/health"]["get"]["security"] == []


def test_keys_of_logit_bias_are_the_ids_of_the_model(document):
    pattern = re.compile(document["components"]["schemas"]["ChatRequest"]["properties"]["logit_bias"]["propertyNames"]["pattern"])
    assert [k for k in range(5000) if pattern.match(str(k))] == list(range(2048))
    assert not any(pattern.match(key) for key in ("", "-1", "00", "01", "1.0", " 1", "1 ", "a"))


def test_the_document_needs_the_key(keyed):
    assert requests.get(keyed.url + "/openapi.json", timeout=30).status_code == 401


@pytest.mark.soak
def test_schemathesis_finds_no_difference(keyed, tmp_path):
    seed = random.randrange(2 ** 31) if SOAK_S else 1
    more = ["--max-time", str(SOAK_S)] if SOAK_S else ["--max-examples", str(EXAMPLES)]
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", HERE / "schemathesis.toml", "run", keyed.url + "/openapi.json",
               "--seed", str(seed), "--header", f"Authorization: Bearer {KEY}", "--report", "json", "--report-json-path", tmp_path / "report.json", *more]
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=tmp_path, timeout=SOAK_S + 300,
                            env={**os.environ, "SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": str(HERE)})
    assert result.returncode == 0, f"seed {seed}\n" + result.stdout[-20000:] + result.stderr[-2000:]
    print(re.search(r"Test cases:\n *(.*)", result.stdout).group(1))
