"""HTTPS and secure WebSockets, served by the server itself, in both lanes."""

from __future__ import annotations

import json
import logging
import os
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from support.command_line import Cli
from support.live_server import wait_for
from websockets.sync.client import connect

from strandline.server.application import Application
from strandline.server.run import Server, listen
from strandline.server.settings import BadSettings, PipelineSettings, ServerSettings, Settings, StorageSettings, check
from strandline.server.tls import BadCertificate, Certificate

NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
LOOPBACK = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])


def write_certificate(directory: Path) -> tuple[str, str]:
    """A new self-signed certificate for 127.0.0.1, and its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    made = x509.CertificateBuilder(NAME, NAME, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    signed = made.add_extension(LOOPBACK, False).sign(key, hashes.SHA256())
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    paths = directory / "server.pem", directory / "server.key"
    paths[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    return str(paths[0]), str(paths[1])


@contextmanager
def tls_server(directory: Path, lane: str) -> Iterator[int]:
    certificate, key = write_certificate(directory)
    settings = Settings(
        server=ServerSettings(
            fast_lane=lane == "fast", tls_certificate=certificate, tls_key=key, head_timeout_seconds=1
        ),
        storage=StorageSettings(data_dir=str(directory / "data")),
    )
    application = Application(settings)
    server, listener = Server(application), listen("127.0.0.1", 0)
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]))
    thread.start()
    try:
        wait_for(lambda: application.status.ready)
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def trusting(directory: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=directory / "server.pem")


@pytest.mark.both_lanes
def test_requests_streams_and_websockets_over_tls(tmp_path: Path, lane: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with tls_server(tmp_path, lane) as port:
        url, context = f"https://127.0.0.1:{port}", trusting(tmp_path)
        with httpx.Client(base_url=url, verify=context, trust_env=False, timeout=20) as client:
            large = "x" * 900_000
            for data in (1, large):
                assert client.post("/v0/topics/t", json={"records": [{"data": data}]}).status_code in (200, 201)
            records = client.post("/v0/topics/t/diff", json={"from_seq": 0}).json()["records"]
            assert [record["data"] for record in records] == [1, large]
            assert client.get("/console/").status_code == 200
            wid = client.post("/v0/watch", json={"topics": {"t": {"from_seq": 0}}}).json()["wid"]
            with client.stream("GET", f"/v0/watch/{wid}", headers={"accept": "text/event-stream"}) as events:
                assert '"topic":"t"' in next(line for line in events.iter_lines() if '"data":1' in line)
        with connect(f"wss://127.0.0.1:{port}/v0/ws", ssl=context, proxy=None, max_size=None) as socket:
            socket.send(json.dumps({"op": "subscribe", "topic": "t"}))
            assert json.loads(socket.recv(20))["op"] == "subscribed"
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{port}/v0/health", trust_env=False)
        with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
            httpx.get(f"{url}/v0/health", trust_env=False)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.pem"))
        assert Cli(url).rows("log", "tail", "t", "-n", "2")[0]["data"] == 1


def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    with tls_server(tmp_path, "fast") as port:
        url = f"https://127.0.0.1:{port}/v0/health"
        old = trusting(tmp_path)
        assert httpx.get(url, verify=old, trust_env=False).status_code == 200
        write_certificate(tmp_path)
        new = trusting(tmp_path)

        def renewed() -> bool:
            try:
                return httpx.get(url, verify=new, trust_env=False).status_code == 200
            except httpx.ConnectError:
                return False

        wait_for(renewed)
        with pytest.raises(httpx.ConnectError):
            httpx.get(url, verify=old, trust_env=False)


def test_half_a_renewal_keeps_the_old_certificate(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certificate, key = write_certificate(tmp_path)
    served = Certificate(certificate, key)
    assert not served.refresh()
    (tmp_path / "new").mkdir()
    new_certificate, new_key = write_certificate(tmp_path / "new")
    with caplog.at_level(logging.ERROR):
        os.replace(new_certificate, certificate)
        assert not served.refresh()
    assert "the server keeps the old one" in caplog.text
    os.replace(new_key, key)
    assert served.refresh()


def test_unusable_settings_are_refused(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    with pytest.raises(BadCertificate, match="cannot use tls_certificate"):
        Certificate(key, certificate)
    with pytest.raises(BadCertificate, match="No such file"):
        Certificate(certificate, str(tmp_path / "absent"))
    with pytest.raises(BadSettings, match="belong together"):
        check(Settings(server=ServerSettings(tls_key=key)))
    served = ServerSettings(tls_certificate=certificate, tls_key=key)
    with pytest.raises(BadSettings, match="needs a server without TLS"):
        check(Settings(server=served, pipeline=PipelineSettings(pipeline_project="project")))
