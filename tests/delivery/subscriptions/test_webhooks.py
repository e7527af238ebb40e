from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import wraps
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from strandline.delivery.subscriptions import webhooks as courier_module
from strandline.delivery.subscriptions.webhooks import HttpCourier, WebhookAnswer


def on_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **fixtures: Any) -> None:
        asyncio.run(test(*arguments, **fixtures))  # type: ignore[arg-type]

    return run


class Receiver:
    """A server on the loopback that remembers what it was sent and answers whatever it is told to."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.answer = b"HTTP/1.1 204 No Content\r\n\r\n"
        self.silent = False
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        self.requests.append(head + await reader.readexactly(length))
        if self.silent:
            await reader.read()
        writer.write(self.answer)
        writer.close()


def _json(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


def _zipped(body: bytes) -> bytes:
    """What nobody asked for."""
    body = gzip.compress(body, mtime=0)
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body)
    return head + body


@asynccontextmanager
async def _receiver(secure: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=secure)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()


async def _deliver(courier: HttpCourier, url: str, body: bytes = b"{}") -> WebhookAnswer:
    future: asyncio.Future[WebhookAnswer] = asyncio.get_running_loop().create_future()
    courier.deliver(url, body, {"content-type": "application/json", "webhook-signature": "t=1"}, future.set_result)
    answer = await asyncio.wait_for(future, 30)
    # Every failure has a reason, whatever it says.
    assert bool(answer.why) is not answer.delivered
    return msgspec.structs.replace(answer, why="")


@on_a_loop
async def test_the_body_arrives_as_it_is_with_its_headers() -> None:
    async with _receiver() as receiver:
        url = f"http://localhost:{receiver.port}/hook?x=1"
        assert await _deliver(HttpCourier(private=True), url, b'{"a": 1}') == WebhookAnswer(delivered=True, done=False)
    [request] = receiver.requests
    head, _, body = request.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert lines[0] == b"post /hook?x=1 http/1.1"
    assert b"host: localhost:%d" % receiver.port in lines
    assert b"webhook-signature: t=1" in lines
    assert b"content-type: application/json" in lines
    assert body == b'{"a": 1}'


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (_json(b'{"done":true}'), WebhookAnswer(delivered=True, done=True)),
        (_json(b'{"done":true,"more":[1]}', b"202 Accepted"), WebhookAnswer(delivered=True, done=True)),
        (_json(b'{"done":false}'), WebhookAnswer(delivered=True)),
        (_json(b'{"done":"yes"}'), WebhookAnswer(delivered=True)),
        (_json(b"[]"), WebhookAnswer(delivered=True)),
        (_json(b"thanks"), WebhookAnswer(delivered=True)),
        (_zipped(b'{"done":true}'), WebhookAnswer(delivered=True)),
        (_json(b" " * (1 << 20)), WebhookAnswer(delivered=True)),
        (_json(b'{"done":true}', b"500 Oops"), WebhookAnswer(delivered=False)),
        (_json(b'{"done":true}', b"404 Not Found"), WebhookAnswer(delivered=False)),
        (
            b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
            WebhookAnswer(delivered=False),
        ),
        (b"what?\r\n\r\n", WebhookAnswer(delivered=False)),
        (b"", WebhookAnswer(delivered=False)),
    ],
)
@on_a_loop
async def test_what_the_answer_means(answer: bytes, expected: WebhookAnswer) -> None:
    async with _receiver() as receiver:
        receiver.answer = answer
        assert await _deliver(HttpCourier(private=True), f"http://127.0.0.1:{receiver.port}/") == expected
        assert len(receiver.requests) == 1


@on_a_loop
async def test_whatever_goes_wrong_is_told() -> None:
    def resolve(host: str, port: int) -> list[Any]:
        raise RuntimeError("nobody expects this")

    assert await _deliver(HttpCourier(resolve, private=True), "http://localhost/") == WebhookAnswer(delivered=False)
    assert await _deliver(HttpCourier(private=True), "not an address") == WebhookAnswer(delivered=False)


@on_a_loop
async def test_nobody_there_is_a_failure() -> None:
    async with _receiver() as receiver:
        port = receiver.port
    assert await _deliver(HttpCourier(private=True), f"http://127.0.0.1:{port}/") == WebhookAnswer(delivered=False)


@on_a_loop
async def test_who_takes_too_long_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier_module, "SEND_SECONDS", 0.05)
    async with _receiver() as receiver:
        receiver.silent = True
        assert await _deliver(HttpCourier(private=True), f"http://127.0.0.1:{receiver.port}/") == WebhookAnswer(
            delivered=False
        )


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00::1"])
@on_a_loop
async def test_a_name_that_stands_for_a_private_address_is_not_connected_to(address: str) -> None:
    def resolve(host: str, port: int) -> list[Any]:
        return [ip_address(address)]

    async with _receiver() as receiver:
        url = f"https://innocent.example:{receiver.port}/"
        assert await _deliver(HttpCourier(resolve), url) == WebhookAnswer(delivered=False)
        assert receiver.requests == []


@pytest.mark.parametrize("address", ["169.254.169.254", "::ffff:127.0.0.1", "fe80::1", "0.0.0.0", "8.8.8.8"])
@on_a_loop
async def test_private_is_not_everything(address: str) -> None:
    def resolve(host: str, port: int) -> list[Any]:
        return [ip_address(address)]

    assert await _deliver(HttpCourier(resolve, private=True), "http://innocent.example/") == WebhookAnswer(
        delivered=False
    )


@on_a_loop
async def test_this_machine_is_not_connected_to_unless_that_is_configured() -> None:
    async with _receiver() as receiver:
        for host in ("127.0.0.1", "localhost"):
            url = f"http://{host}:{receiver.port}/"
            assert await _deliver(HttpCourier(), url) == WebhookAnswer(delivered=False)
        assert receiver.requests == []


@on_a_loop
async def test_a_local_name_that_stands_for_another_machine_is_not_connected_to() -> None:
    asked = []

    def resolve(host: str, port: int) -> list[Any]:
        asked.append((host, port))
        return [ip_address("93.184.216.34")]

    assert await _deliver(HttpCourier(resolve, private=True), "http://localhost:81/") == WebhookAnswer(delivered=False)
    assert asked == [("localhost", 81)]


@on_a_loop
async def test_the_connection_is_made_to_the_address_that_was_checked() -> None:
    def resolve(host: str, port: int) -> list[Any]:
        return [ip_address("127.0.0.99"), ip_address("127.0.0.1")]

    async with _receiver() as receiver:
        url = f"http://localhost:{receiver.port}/"
        assert (await _deliver(HttpCourier(resolve, private=True), url)).delivered, (
            "if there are several, each is tried"
        )


def _certificate(name: str, path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server that says it is ``name``, and a client that believes it."""
    key = ec.generate_private_key(ec.SECP256R1())
    named = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder(named, named, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2120, 1, 1, tzinfo=UTC))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (path / "certificate").write_bytes(certificate.public_bytes(Encoding.PEM))
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (path / "key").write_bytes(secret)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path / "certificate", path / "key")
    return server, ssl.create_default_context(cafile=str(path / "certificate"))


@pytest.mark.parametrize(("host", "delivered"), [("hooks.example", True), ("other.example", False)])
def test_the_certificate_must_be_that_of_the_name_although_the_address_is_connected_to(
    host: str, delivered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The loopback stands for the public internet here.
    monkeypatch.setattr(courier_module, "is_allowed", lambda url, address, private, loopback: True)
    server, client = _certificate("hooks.example", tmp_path)

    def resolve(host: str, port: int) -> list[Any]:
        return [ip_address("127.0.0.1")]

    async def deliver() -> None:
        async with _receiver(server) as receiver:
            answer = await _deliver(HttpCourier(resolve, client), f"https://{host}:{receiver.port}/")
        assert answer.delivered is delivered
        assert len(receiver.requests) == delivered

    asyncio.run(deliver())


@on_a_loop
async def test_stopping_breaks_off_what_is_under_way() -> None:
    courier = HttpCourier(private=True)
    told: list[WebhookAnswer] = []
    async with _receiver() as receiver:
        receiver.silent = True
        courier.deliver(f"http://127.0.0.1:{receiver.port}/", b"{}", {}, told.append)
        while not receiver.requests:
            await asyncio.sleep(0)
        tasks = list(courier._tasks)
        courier.stop()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert told == []
