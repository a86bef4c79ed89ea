"""test_tls.py: certificates, keys and tokens with real clients. The certificates are made by the lines of docs/security.md
and by openssl here; one TLS cluster is shared by the tests that do not hurt it."""
import contextlib
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess

import grpc
import openai
import pytest
import requests

from cluster import BUILD, MODEL, ROOT, Cluster, wait_for
from grpc_client import Client

ALICE, BOB = "alice-0123456789abcdef", "0123456789-bobs-key-has-no-name"
CHAT = "/v1/chat/completions"
KENYA = {"messages": [{"role": "user", "content": "What is the capital of Kenya?"}], "temperature": 0}
NAIROBI = "The capital of Kenya is Nairobi."
CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def run(*command, **kwargs):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, errors="replace", timeout=60, **kwargs)


class Folder:
    """Where certificates are."""

    def __init__(self, path):
        self.path = pathlib.Path(path)

    def __call__(self, name):
        return str(self.path / name)

    def authority(self, name):
        run("openssl", "req", "-x509", *CURVE, "-days", "30", "-subj", f"/CN={name}", "-keyout", self(f"{name}.key"),
            "-out", self(f"{name}.pem"), check=True)

    def issue(self, name, ca="ca", days=30, extension="extendedKeyUsage=clientAuth"):
        run("openssl", "req", *CURVE, "-subj", f"/CN={name}", "-keyout", self(f"{name}.key"), "-out", self(f"{name}.csr"), check=True)
        pathlib.Path(self("ext")).write_text(extension + "\n")
        run("openssl", "x509", "-req", "-in", self(f"{name}.csr"), "-CA", self(f"{ca}.pem"), "-CAkey", self(f"{ca}.key"),
            "-CAcreateserial", "-days", days, "-extfile", self("ext"), "-out", self(f"{name}.pem"), check=True)

    def pair(self, name):
        return self(f"{name}.pem"), self(f"{name}.key")

    def read(self, name):
        return pathlib.Path(self(name)).read_bytes()


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    folder = Folder(tmp_path_factory.mktemp("certs"))
    page = (ROOT / "docs" / "security.md").read_text()
    lines = re.search(r"```sh\n(openssl req -x509.*?)```", page, re.S).group(1)
    run("bash", "-euc", lines, cwd=folder.path, check=True)  # ca, leader, worker
    folder.authority("other")
    folder.issue("stranger", ca="other")
    folder.issue("expired", days=-1)
    folder.issue("server-only", extension="extendedKeyUsage=serverAuth")
    folder.issue("renewed", extension="subjectAltName=DNS:localhost,IP:127.0.0.1")
    keys = pathlib.Path(folder("keys"))
    keys.write_text(f"# two people\nalice {ALICE}\n\n{BOB}\n")
    keys.chmod(0o600)
    return folder


class TlsCluster(Cluster):
    """Everything over TLS; url names this machine as the certificate does."""

    def __init__(self, certs, worker_flags=None, **kwargs):
        self.certs = certs
        super().__init__(worker_flags=worker_flags if worker_flags is not None else control_flags(certs, "worker"), **kwargs)

    def start_leader(self):
        super().start_leader()
        self.url = self.url.replace("http:", "https:")

    def ready(self):
        try:
            return requests.get(self.url + "/ready", timeout=5, verify=self.certs("ca.pem")).status_code == 200
        except requests.ConnectionError:
            return False


def control_flags(certs, name, ca="ca"):
    return ["--control-tls-cert", certs(f"{name}.pem"), "--control-tls-key", certs(f"{name}.key"), "--control-tls-ca", certs(f"{ca}.pem")]


def api_flags(certs, name="leader"):
    return ["--ssl-certfile", certs(f"{name}.pem"), "--ssl-keyfile", certs(f"{name}.key")]


@pytest.fixture(scope="module")
def cluster(certs):
    """Client certificates are optional here, so one leader shows both what comes in and what does not."""
    flags = [*api_flags(certs), "--ssl-ca-certs", certs("ca.pem"), "--ssl-cert-reqs", "1", "--api-key-file", certs("keys"),
             *control_flags(certs, "leader")]
    with TlsCluster(certs, workers=1, leader_flags=flags) as running:
        running.grpc_port = running.port_of("grpc listening")
        yield running


@pytest.fixture(scope="module")
def strict(certs):
    """A leader alone that requires certificates; it asks for no key."""
    alone = TlsCluster(certs, leader_flags=[*api_flags(certs), "--ssl-ca-certs", certs("ca.pem"), "--ssl-cert-reqs", "2"])
    try:
        alone.start_leader()
        alone.grpc_port = alone.port_of("grpc listening")
        yield alone
    finally:
        alone.stop()


def curl(cluster, certs, *flags, path="/version"):
    return run("curl", "-sS", "--max-time", "20", "--cacert", certs("ca.pem"), *flags, cluster.url + path)


def bearer(key):
    return {"Authorization": "Bearer " + key}


# --- clients that are welcome

@pytest.mark.parametrize("key", [ALICE, BOB])
def test_openai_over_tls_with_either_key(cluster, certs, key):
    with openai.OpenAI(base_url=cluster.url + "/v1", api_key=key, max_retries=0, timeout=60,
                       http_client=openai.DefaultHttpxClient(verify=ssl.create_default_context(cafile=certs("ca.pem")))) as client:
        answer = client.chat.completions.create(model="seedling", stream=True, **KENYA)
        assert "".join(part.choices[0].delta.content or "" for part in answer if part.choices) == NAIROBI


@pytest.mark.parametrize("version", ["--tls-max=1.2", "--tlsv1.3"])
@pytest.mark.parametrize("certificate", [None, "worker"])
def test_curl_over_both_versions_with_and_without_a_certificate(cluster, certs, version, certificate):
    flags = version.split("=") + (["--cert", certs("worker.pem"), "--key", certs("worker.key")] if certificate else [])
    done = curl(cluster, certs, *flags)
    assert done.returncode == 0, done.stderr
    assert '"version"' in done.stdout


@pytest.fixture
def ask_grpc(stubs, certs):
    def ask(port, ca="ca", client=None, key=ALICE):
        pair = [certs.read(f"{client}.key"), certs.read(f"{client}.pem")] if client else [None, None]
        made = Client(stubs, port, key, grpc.ssl_channel_credentials(certs.read(f"{ca}.pem"), *pair))
        with made.channel:
            return made.ask(chat=KENYA["messages"][0]["content"], temperature=0, timeout=20)
    return ask


@pytest.mark.parametrize("client, key", [(None, ALICE), ("worker", BOB)])
def test_grpc_over_tls(cluster, certs, client, key, ask_grpc):
    assert ask_grpc(cluster.grpc_port, client=client, key=key).text == NAIROBI


def test_moectl_over_tls(cluster, certs):
    moectl = [BUILD / "moectl", "chat", KENYA["messages"][0]["content"], "--url", cluster.url]
    ca = ["--ca-file", certs("ca.pem")]
    assert NAIROBI in run(*moectl, *ca, "--api-key-file", certs("keys")).stdout
    assert NAIROBI in run(*moectl, *ca, "--cert-file", certs("worker.pem"), "--key-file", certs("worker.key"),
                          env={**os.environ, "MOESAIC_API_KEY": BOB}).stdout
    for flags, words in [(ca, "API key"), ([], "--ca-file")]:
        done = run(*moectl, *flags)
        assert done.returncode != 0 and words in done.stdout + done.stderr
    both = run(*moectl, *ca, "--api-key-file", certs("keys"), env={**os.environ, "MOESAIC_API_KEY": BOB})
    assert both.returncode == 2 and "both given" in both.stderr


def test_moectl_says_what_a_refusing_leader_wants(cluster, strict, certs):
    done = run(BUILD / "moectl", "ready", "--url", strict.url, "--ca-file", certs("ca.pem"))
    assert done.returncode == 1 and "--cert-file" in done.stderr
    done = run(BUILD / "moectl", "ready", "--url", cluster.url, "--ca-file", certs("other.pem"))
    assert done.returncode == 1 and "--ca-file" in done.stderr


# --- clients that are not

@pytest.mark.parametrize("version", ["--tls-max=1.2", "--tlsv1.3"])
@pytest.mark.parametrize("client, alert", [("stranger", "unknown ca"), ("expired", "certificate"), ("server-only", "certificate")])
def test_http_refuses_a_bad_certificate_even_where_none_is_needed(cluster, certs, client, alert, version):
    done = curl(cluster, certs, *version.split("="), "--cert", certs(f"{client}.pem"), "--key", certs(f"{client}.key"))
    assert done.returncode != 0 and done.stdout == "" and alert in done.stderr.lower()
    assert "refused a client's certificate" in cluster.leader.log()


@pytest.mark.parametrize("version", ["--tls-max=1.2", "--tlsv1.3"])
def test_http_requires_a_certificate(strict, certs, version):
    good = ["--cert", certs("worker.pem"), "--key", certs("worker.key")]
    assert curl(strict, certs, *version.split("="), *good).returncode == 0
    for flags in [], ["--cert", certs("stranger.pem"), "--key", certs("stranger.key")]:
        done = curl(strict, certs, *version.split("="), *flags)
        assert done.returncode != 0 and done.stdout == ""


@pytest.mark.parametrize("client", ["stranger", "expired", "server-only", None])
def test_grpc_refuses_what_http_refuses(strict, certs, client, ask_grpc):
    with pytest.raises(grpc.RpcError) as e:
        ask_grpc(strict.grpc_port, client=client)
    assert e.value.code() == grpc.StatusCode.UNAVAILABLE and "worker" not in e.value.details()
    with pytest.raises(grpc.RpcError) as e:  # the right one gets through to the group that is not there
        ask_grpc(strict.grpc_port, client="worker")
    assert "worker" in e.value.details()


def test_clients_refuse_a_leader_of_another_authority_or_name(cluster, certs, ask_grpc):
    done = run("curl", "-sS", "--cacert", certs("other.pem"), cluster.url + "/version")
    assert done.returncode == 60
    named = cluster.url.replace("127.0.0.1", "leader.invalid")
    done = run("curl", "-sS", "--cacert", certs("ca.pem"), "--resolve", f"leader.invalid:{cluster.port}:127.0.0.1", named + "/version")
    assert done.returncode == 60
    with pytest.raises(grpc.RpcError):
        ask_grpc(cluster.grpc_port, ca="other")


@pytest.mark.parametrize("port", ["port", "grpc_port", "control_port"])
@pytest.mark.parametrize("version, spoken", [("tls1", False), ("tls1_1", False), ("tls1_2", True), ("tls1_3", True)])
def test_old_tls_versions_are_refused_on_every_port(cluster, certs, port, version, spoken):
    done = run("openssl", "s_client", "-connect", f"127.0.0.1:{getattr(cluster, port)}", f"-{version}", "-cipher", "ALL:@SECLEVEL=0",
               "-CAfile", certs("ca.pem"), "-cert", certs("worker.pem"), "-key", certs("worker.key"), "-alpn", "h2", input="")
    assert ("Verify return code: 0 (ok)" in done.stdout and "Cipher is (NONE)" not in done.stdout) == spoken


@pytest.mark.parametrize("port", ["port", "grpc_port", "control_port"])
def test_plain_text_to_a_tls_port_gets_no_answer(cluster, port):
    with socket.create_connection(("127.0.0.1", getattr(cluster, port)), timeout=20) as s:
        s.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
        heard = b""
        with contextlib.suppress(ConnectionResetError):
            while part := s.recv(4096):
                heard += part
    assert b"HTTP" not in heard and b"version" not in heard


def test_half_a_handshake_holds_up_nobody(cluster, certs):
    held = [socket.create_connection(("127.0.0.1", cluster.port)) for _ in range(20)]
    for s in held:
        s.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    assert curl(cluster, certs).returncode == 0
    for s in held:
        s.close()


# --- keys

@pytest.mark.parametrize("key", ["", "wrong", ALICE[:-1], ALICE + "x", "alice", f"alice {ALICE}", ALICE.upper()])
def test_wrong_keys_are_refused_by_both_servers(cluster, certs, key, ask_grpc):
    response = requests.post(cluster.url + CHAT, json=KENYA, headers=bearer(key) if key else {}, verify=certs("ca.pem"), timeout=20)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    error = response.json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "invalid_api_key", None)
    with pytest.raises(grpc.RpcError) as e:
        ask_grpc(cluster.grpc_port, key=key)
    assert e.value.code() == grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("program", ["moe-leader", "moe-worker", "moectl"])
def test_a_secret_as_a_flag_or_in_the_option_file_is_refused(program, tmp_path):
    name = "control-token" if program == "moe-worker" else "api-key"
    command = [BUILD / program, "ready"] if program == "moectl" else [BUILD / program]
    (tmp_path / "options.yaml").write_text(f"{name}: sesame-sesame\n")
    for flags in [f"--{name}", "sesame-sesame"], [f"--{name}=sesame-sesame"], ["--config", str(tmp_path / "options.yaml")]:
        done = run(*command, *flags)
        assert done.returncode == 2
        assert f"--{name}-file" in done.stderr and "MOESAIC_" in done.stderr and "sesame" not in done.stderr


@pytest.mark.parametrize("variable", ["MOESAIC_API_KEY", "VLLM_API_KEY"])
def test_a_key_from_the_environment_is_not_left_there(variable, tmp_path):
    secret = "quite-a-secret-key-of-mine"
    command = [BUILD / "moe-leader", "--model", MODEL, "--port", "0", "--control-port", "0", "--grpc-port", "0"]
    env = {**os.environ, variable: secret, "MOESAIC_CONTROL_TOKEN": secret + "-token"}
    log = open(tmp_path / "log", "wb")
    leader = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        def port():
            assert leader.poll() is None, (tmp_path / "log").read_text()
            found = re.search(r"http listening address \S*:(\d+)", (tmp_path / "log").read_text())
            return found and found.group(1)
        url = f"http://127.0.0.1:{wait_for('port', port)}/v1/models"
        for name in "environ", "cmdline":
            assert secret.encode() not in pathlib.Path(f"/proc/{leader.pid}/{name}").read_bytes()
        assert secret not in run("ps", "-ef", "e").stdout
        assert requests.get(url, timeout=20).status_code == 401
        assert requests.get(url, timeout=20, headers=bearer(secret)).status_code == 200
        assert re.search(r"http: call refused peer 127\.0\.0\.1:\d+ reason", (tmp_path / "log").read_text())
        assert secret not in (tmp_path / "log").read_text()
    finally:
        leader.kill()
        leader.wait()
        log.close()


# --- starting with wrong files

def leader_says(*flags, **env):
    done = run(BUILD / "moe-leader", "--model", MODEL, "--port", "0", "--control-port", "0", "--grpc-port", "0", *flags,
               env={**os.environ, **env})
    return done.returncode, done.stderr


def test_wrong_files_stop_the_start_by_flag_and_file(certs, tmp_path):
    (tmp_path / "junk").write_text("not a certificate\n")
    (tmp_path / "zero").write_bytes(b"a\0b")
    (tmp_path / "empty").write_text("# nothing\n")
    (tmp_path / "twice").write_text("a 0123456789abcdefgh\nb 0123456789abcdefgh\n")
    (tmp_path / "three").write_text("0123456789abcdefgh\na b c\n")
    run("openssl", "ec", "-aes128", "-passout", "pass:x", "-in", certs("leader.key"), "-out", tmp_path / "locked.key", check=True)
    cert, key, ca = certs("leader.pem"), certs("leader.key"), certs("ca.pem")
    junk, api = tmp_path / "junk", ["--ssl-certfile", cert, "--ssl-keyfile", key]
    wrong = [
        (["--ssl-certfile", cert], ["--ssl-certfile", "--ssl-keyfile"]),
        (["--ssl-keyfile", key], ["--ssl-certfile", "--ssl-keyfile"]),
        (["--ssl-certfile", cert, "--ssl-keyfile", certs("worker.key")], ["--ssl-keyfile", "worker.key", "leader.pem"]),
        (["--ssl-certfile", junk, "--ssl-keyfile", key], ["--ssl-certfile", "junk", "PEM"]),
        (["--ssl-certfile", cert, "--ssl-keyfile", junk], ["--ssl-keyfile", "junk", "PEM"]),
        (["--ssl-certfile", cert, "--ssl-keyfile", tmp_path / "locked.key"], ["--ssl-keyfile", "locked.key", "password"]),
        (["--ssl-certfile", cert, "--ssl-keyfile", tmp_path / "zero"], ["--ssl-keyfile", "zero"]),
        (["--ssl-certfile", "/nowhere/cert.pem", "--ssl-keyfile", key], ["--ssl-certfile", "/nowhere/cert.pem", "No such file"]),
        (["--ssl-certfile", tmp_path, "--ssl-keyfile", key], ["--ssl-certfile", "regular file"]),
        ([*api, "--ssl-ca-certs", junk], ["--ssl-ca-certs", "junk"]),
        ([*api, "--ssl-cert-reqs", "2"], ["--ssl-cert-reqs", "--ssl-ca-certs"]),
        ([*api, "--ssl-cert-reqs", "3"], ["--ssl-cert-reqs"]),
        (["--ssl-ca-certs", ca], ["--ssl-ca-certs", "--ssl-certfile"]),
        (["--control-tls-ca", ca], ["--control-tls-ca", "--control-tls-cert"]),
        (["--control-tls-cert", cert, "--control-tls-key", certs("worker.key")], ["--control-tls-key", "worker.key"]),
        (["--api-key-file", tmp_path / "empty"], ["--api-key-file", "empty", "no key"]),
        (["--api-key-file", tmp_path / "twice"], ["--api-key-file", "twice", "line 2"]),
        (["--api-key-file", tmp_path / "three"], ["--api-key-file", "three", "line 2"]),
        (["--api-key-file", "/nowhere/keys"], ["--api-key-file", "/nowhere/keys"]),
        (["--control-token-file", tmp_path / "twice"], ["--control-token-file", "twice", "more than one"]),
        (["--control-token-file", tmp_path / "empty"], ["--control-token-file", "empty"]),
        (["--control-host", "0.0.0.0"], ["0.0.0.0", "token"]),
        (["--host", "0.0.0.0"], ["0.0.0.0", "--api-key-file"]),
    ]
    for flags, words in wrong:
        code, text = leader_says(*flags)
        assert code == 2, (flags, text)
        assert all(word in text for word in words), (flags, text)
    code, text = leader_says(MOESAIC_API_KEY="")
    assert code == 2 and "MOESAIC_API_KEY" in text
    code, text = leader_says("--api-key-file", certs("keys"), MOESAIC_API_KEY="0123456789abcdef")
    assert code == 2 and "both given" in text


def worker_says(*flags, **env):
    done = run("timeout", "20", BUILD / "moe-worker", *flags, env={**os.environ, **env})
    return done.returncode, done.stderr


def test_a_worker_refuses_wrong_files_and_a_token_in_clear(certs, tmp_path):
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    wrong = [
        (["--control-token-file", "/nowhere/token"], ["--control-token-file", "/nowhere/token"]),
        (["--control-tls-cert", certs("worker.pem"), "--control-tls-key", certs("worker.key")], ["--control-tls-ca"]),
        (["--control-tls-name", "leader"], ["--control-tls-ca"]),
        (control_flags(certs, "worker")[:3] + [certs("leader.key")] + control_flags(certs, "worker")[4:], ["--control-tls-key", "leader.key"]),
        (["--leader", "leader.invalid", "--control-token-file", token], ["leader.invalid", "--control-insecure", "--control-tls-ca"]),
    ]
    for flags, words in wrong:
        code, text = worker_says(*flags)
        assert code == 2, (flags, text)
        assert all(word in text for word in words), (flags, text)
    code, text = worker_says("--leader", "leader.invalid", MOESAIC_CONTROL_TOKEN="0123456789abcdef")
    assert code == 2 and "--control-insecure" in text


def test_a_token_in_clear_beyond_loopback_needs_a_word(certs, tmp_path):
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    code, text = leader_says("--control-host", "0.0.0.0", "--control-token-file", token)
    assert code == 2 and "--control-insecure" in text and "--control-tls-cert" in text
    for flags in ["--control-insecure"], control_flags(certs, "leader")[:4]:
        alone = Cluster(leader_flags=["--control-host", "0.0.0.0", "--control-token-file", str(token), *flags])
        try:
            alone.start_leader()  # it listens
            assert ("unencrypted" in alone.leader.log()) == (flags == ["--control-insecure"])
        finally:
            alone.stop()


def test_what_is_only_unwise_is_a_warning(certs, tmp_path):
    for name in "expired.pem", "expired.key":
        shutil.copy(certs(name), tmp_path / name)
    os.chmod(tmp_path / "expired.key", 0o644)
    (tmp_path / "keys").write_text("short\n")
    os.chmod(tmp_path / "keys", 0o644)
    alone = Cluster(leader_flags=["--ssl-certfile", str(tmp_path / "expired.pem"), "--ssl-keyfile", str(tmp_path / "expired.key"),
                                  "--api-key-file", str(tmp_path / "keys")])
    try:
        alone.start_leader()
        log = alone.leader.log()
        assert re.search(r"warn .*--ssl-certfile .*expired.pem.*expired on", log)
        assert re.search(r"warn .*--ssl-keyfile .*expired.key.*0644", log)
        assert re.search(r"warn .*--api-key-file .*keys.*0644", log)
        assert re.search(r"warn .*--api-key-file .*keys of fewer than 16 characters may be guessed: 1 of 1", log)
    finally:
        alone.stop()


# --- the control plane

def test_workers_that_are_not_trusted_hear_why_and_the_right_one_joins(certs):
    group = TlsCluster(certs, leader_flags=[*api_flags(certs), *control_flags(certs, "leader")])
    group.n_workers = 1
    wrong = {
        "no-tls": ([], "does the leader speak TLS"),
        "no-certificate": (["--control-tls-ca", certs("ca.pem")], "--control-tls-cert"),
        "wrong-ca": (control_flags(certs, "worker", ca="other"), "--control-tls-ca"),
        "stranger": (control_flags(certs, "stranger"), "--control-tls-cert"),
        "expired": (control_flags(certs, "expired"), "--control-tls-cert"),
        "wrong-name": ([*control_flags(certs, "worker"), "--control-tls-name", "nobody.example"], "nobody.example"),
    }
    try:
        group.start_leader()
        for name, (flags, _) in wrong.items():
            group.worker_flags = flags
            group.workers.append(group.start_worker())
        for worker, (name, (_, words)) in zip(group.workers, wrong.items()):
            wait_for(f"reason of {name}", lambda: "cannot join" in worker.log())
            assert re.search(f"warn .*cannot join .*{re.escape(words)}.*; trying again", worker.log()), worker.log()
            assert worker.alive()
        assert wait_for("the leader's word", lambda: "handshake" in group.leader.log())
        assert "worker joined" not in group.leader.log()
        group.worker_flags = [*control_flags(certs, "worker"), "--control-tls-name", "leader.example"]
        group.workers.append(group.start_worker())
        wait_for("ready group", group.ready)
    except BaseException:
        group.print_logs()
        raise
    finally:
        group.stop()


def test_a_token_over_tls(certs, tmp_path):
    token, other = tmp_path / "token", tmp_path / "other"
    token.write_text("# of this cluster\n0123456789abcdef\n")
    other.write_text("0123456789abcdeX\n")
    ca = ["--control-tls-ca", certs("ca.pem")]
    with TlsCluster(certs, workers=1, leader_flags=[*api_flags(certs), *control_flags(certs, "leader")[:4], "--control-token-file", str(token)],
                    worker_flags=[*ca, "--control-token-file", str(token)]) as group:
        group.worker_flags = [*ca, "--control-token-file", str(other)]
        stranger = group.start_worker()
        group.workers.append(stranger)
        wait_for("a refusal", lambda: "token is missing or wrong" in stranger.log())


# --- rotation

def shown(port, certs, alpn="http/1.1"):
    """The subject of the certificate that a server shows."""
    done = run("openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-CAfile", certs("ca.pem"), "-cert", certs("worker.pem"),
               "-key", certs("worker.key"), "-alpn", alpn, input="")
    return re.search(r"subject=CN = (\S+)", done.stdout).group(1)


def replace(source, target):
    shutil.copy(source, str(target) + ".new")
    os.rename(str(target) + ".new", target)


def test_certificates_change_without_a_restart(certs, tmp_path):
    for name in "pem", "key":
        shutil.copy(certs("leader." + name), tmp_path / name)
    pair = [str(tmp_path / "pem"), "--ssl-keyfile", str(tmp_path / "key")]
    flags = ["--ssl-certfile", *pair, "--control-tls-cert", str(tmp_path / "pem"), "--control-tls-key", str(tmp_path / "key"),
             "--control-tls-ca", certs("ca.pem")]
    with TlsCluster(certs, workers=1, leader_flags=flags) as group:
        ports = [(group.port, "http/1.1"), (group.port_of("grpc listening"), "h2"), (group.control_port, "h2")]

        def all_show(name):
            return all(shown(port, certs, alpn) == name for port, alpn in ports)
        assert all_show("leader")
        with requests.Session() as session:  # a connection that stays open over the change
            session.verify, session.trust_env = certs("ca.pem"), False
            assert session.get(group.url + "/version", timeout=20).status_code == 200
            replace(certs("renewed.pem"), tmp_path / "pem")  # half of the pair: the old one stays
            assert all_show("leader")
            wait_for("a warning", lambda: "the old ones stay" in group.leader.log())
            replace(certs("renewed.key"), tmp_path / "key")
            wait_for("the new certificate", lambda: all_show("renewed"))
            assert session.get(group.url + "/version", timeout=20).status_code == 200
        assert group.ready()
        assert group.leader.log().count("worker joined") == 1
        group.workers[0].end()  # a new worker meets the new certificate
        group.workers[0] = group.start_worker()
        wait_for("a second worker", lambda: group.leader.log().count("worker joined") == 2)
        wait_for("ready group", group.ready)


def test_local_workers_join_with_the_leaders_certificate(certs):
    flags = [*api_flags(certs), *control_flags(certs, "leader"), "--local-workers", "1"]
    with TlsCluster(certs, workers=0, leader_flags=flags) as local:
        assert "worker joined rank 0 name local-0" in local.leader.log()
