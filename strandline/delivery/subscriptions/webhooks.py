"""Sending webhooks, and the addresses they may be sent to: the public internet over TLS and, if configured, this
machine or private networks.

An address is checked twice. The URL is checked when the subscription is created. The address that its host name
resolves to is checked at every delivery, and the connection is made to the address that was checked.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Protocol

import msgspec

from strandline.delivery.subscriptions.errors import AddressRejected
from strandline.late_import import LateModule

if TYPE_CHECKING:
    import httpx
else:
    httpx = LateModule("httpx")

MAX_URL = 2048

Address = IPv4Address | IPv6Address

_GLOBAL_UNICAST = IPv6Network("2000::/3")
#: Networks whose addresses stand for IPv4 addresses: Teredo and 6to4.
_TUNNELS = (IPv6Network("2001::/32"), IPv6Network("2002::/16"))
#: This machine and private networks. Link-local addresses are excluded, because clouds serve the machine's credentials
#: there.
_PRIVATE = tuple(
    ip_network(network)
    for network in (
        "127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "::1/128", "fc00::/7",
    )
)  # fmt: skip
#: Addresses in private ranges at which a cloud serves the credentials of the machine.
_METADATA = frozenset((IPv4Address("100.100.100.200"), IPv6Address("fd00:ec2::254")))
_HOW_PRIVATE = "set streams.webhook_allow_private (STRANDLINE_WEBHOOK_ALLOW_PRIVATE=1) to allow that"
_HOW_LOOPBACK = "set streams.webhook_allow_loopback (STRANDLINE_WEBHOOK_ALLOW_LOOPBACK=1) to allow that"
#: Numeric hosts that name resolution accepts as IPv4 addresses: 2130706433, 0x7f.1, 127.1.
_NUMERIC = re.compile(r"(0[xX][0-9a-fA-F]*|[0-9]+)(\.(0[xX][0-9a-fA-F]*|[0-9]+))*", re.ASCII)


def parse_url(text: str, *, private: bool = False, loopback: bool = False) -> httpx.URL:
    """Parse the URL of a webhook. Raises :class:`AddressRejected` if webhooks may not be sent to it. ``private`` allows
    this machine and private networks; ``loopback`` allows this machine."""
    if len(text) > MAX_URL:
        raise AddressRejected(f"webhook.url must have at most {MAX_URL} characters")
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError):
        raise AddressRejected("webhook.url is not a valid URL") from None
    if url.scheme not in ("http", "https"):
        raise AddressRejected("webhook.url must use https")
    if not url.host:
        raise AddressRejected("webhook.url must have a host")
    if url.userinfo:
        raise AddressRejected("webhook.url must not have a user name or a password")
    _check_host(url, private, loopback or private)
    return url


def is_allowed(url: httpx.URL, address: Address, *, private: bool = False, loopback: bool = False) -> bool:
    """Whether a request to this URL may be sent to this address, to which its host resolves."""
    if is_public(address):
        return url.scheme == "https"
    return is_private(address) and (private or (loopback and address.is_loopback))


def is_private(address: Address) -> bool:
    """Whether the address is this machine or in a private network, and does not serve the credentials of the
    machine."""
    return address not in _METADATA and any(address in network for network in _PRIVATE)


def is_public(address: Address) -> bool:
    """Whether the address is on the public internet. Addresses that embed another address do not count."""
    if isinstance(address, IPv6Address):
        if address not in _GLOBAL_UNICAST or any(address in tunnel for tunnel in _TUNNELS):
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved)


def _check_host(url: httpx.URL, private: bool, loopback: bool) -> None:
    host = url.host.lower().rstrip(".")
    is_local = host == "localhost" or host.endswith(".localhost")
    address = _literal(host)
    if address is None and _NUMERIC.fullmatch(host):
        raise AddressRejected("webhook.url has an invalid host: use a name or an IP address in its usual notation")
    if is_local or (address is not None and address.is_loopback and is_private(address)):
        if not loopback:
            raise AddressRejected(f"webhook.url points to this machine; {_HOW_LOOPBACK}")
    elif address is not None and is_private(address):
        if not private:
            raise AddressRejected(f"webhook.url points to a private network; {_HOW_PRIVATE}")
    elif address is not None and not is_public(address):
        raise AddressRejected("webhook.url must not point to a link-local, multicast or other special address")
    elif url.scheme == "http" and (address is not None or not private):
        raise AddressRejected("webhook.url must use https; http is allowed only for this machine and private networks")


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None


log = logging.getLogger(__name__)
# httpx logs every URL, and the path of a webhook is often a secret.
logging.getLogger("httpx").setLevel(logging.WARNING)

#: The time limit of a delivery: resolving the name, connecting, sending, and reading the response.
SEND_SECONDS = 10.0
#: The maximum number of concurrent requests. Further requests wait.
MAX_UNDER_WAY = 256
#: The maximum number of bytes of a response that are read.
MAX_ANSWER_BYTES = 64 << 10

Resolve = Callable[[str, int], list[Address]]


class WebhookAnswer(msgspec.Struct, frozen=True):
    """The result of a delivery. ``done`` means that the receiver has processed all records it was notified of; ``why``
    says why the delivery failed."""

    delivered: bool
    done: bool = False
    why: str = ""


class Courier(Protocol):
    """Sends webhooks. ``deliver`` is called on the loop and returns at once; ``tell`` is later called on the loop
    exactly once."""

    def deliver(
        self, url: str, body: bytes, headers: Mapping[str, str], tell: Callable[[WebhookAnswer], None]
    ) -> None: ...

    def check(self, url: str) -> None:
        """Raise :class:`AddressRejected` if webhooks may not be sent to the URL."""

    def stop(self) -> None:
        """Cancel all deliveries. Their ``tell`` is not called."""


class _Done(msgspec.Struct):
    done: bool = False


_decoder = msgspec.json.Decoder(_Done)


class HttpCourier(Courier):
    """Sends webhooks over HTTP. Connections are not reused: a connection made for one name must not serve another name
    at the same address.

    ``resolve`` returns the addresses of a name. It blocks while a name server does not respond, so it runs on
    ``threads``, or on the loop's default executor if that is None. ``trust`` holds the trusted certificates. Both
    default to those of the system. ``private`` allows this machine and private networks; ``loopback`` allows this
    machine.
    """

    def __init__(
        self,
        resolve: Resolve | None = None,
        trust: ssl.SSLContext | None = None,
        *,
        private: bool = False,
        loopback: bool = False,
        threads: Executor | None = None,
    ) -> None:
        self._private = private
        self._loopback = loopback
        self._resolve = resolve or _resolve
        self._trust = trust
        self._threads = threads
        self._client: httpx.AsyncClient | None = None
        self._slots = asyncio.Semaphore(MAX_UNDER_WAY)
        self._tasks: set[asyncio.Task[None]] = set()

    def check(self, url: str) -> None:
        parse_url(url, private=self._private, loopback=self._loopback)

    def deliver(self, url: str, body: bytes, headers: Mapping[str, str], tell: Callable[[WebhookAnswer], None]) -> None:
        task = asyncio.get_running_loop().create_task(self._deliver(url, body, headers, tell))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _deliver(
        self, url: str, body: bytes, headers: Mapping[str, str], tell: Callable[[WebhookAnswer], None]
    ) -> None:
        async with self._slots:
            try:
                async with asyncio.timeout(SEND_SECONDS):
                    answer = await self._send(
                        parse_url(url, private=self._private, loopback=self._loopback), body, headers
                    )
            except Exception as error:  # every failure is retried
                late = f"it did not answer within {SEND_SECONDS:g} s" if isinstance(error, TimeoutError) else ""
                why = late or str(error) or type(error).__name__
                log.warning("the webhook at %s was not delivered: %s", _host(url), why)
                answer = WebhookAnswer(delivered=False, why=why)
        tell(answer)

    async def _send(self, url: httpx.URL, body: bytes, headers: Mapping[str, str]) -> WebhookAnswer:
        host, port = url.raw_host.decode("ascii"), url.port or (443 if url.scheme == "https" else 80)
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, self._resolve, host, port)
        addresses = [
            address for address in found if is_allowed(url, address, private=self._private, loopback=self._loopback)
        ]
        if not addresses:
            raise AddressRejected(
                "its host resolves to no allowed address; this machine requires "
                "streams.webhook_allow_loopback, private networks require streams.webhook_allow_private"
            )
        for address in addresses[:-1]:
            try:
                return await self._send_to(address, url, body, headers)
            except httpx.ConnectError:
                continue
        return await self._send_to(addresses[-1], url, body, headers)

    async def _send_to(
        self, address: Address, url: httpx.URL, body: bytes, headers: Mapping[str, str]
    ) -> WebhookAnswer:
        client = await self._http()
        request = client.build_request(
            "POST",
            url.copy_with(host=str(address)),
            content=body,
            headers={**headers, "host": url.netloc.decode("ascii")},
            extensions={"sni_hostname": url.raw_host.decode("ascii")},
        )
        response = await client.send(request, stream=True)
        try:
            if not response.is_success:
                log.warning("the webhook at %s responded with status %d", url.host, response.status_code)
                return WebhookAnswer(delivered=False, why=f"it responded with status {response.status_code}")
            return WebhookAnswer(delivered=True, done=await _says_done(response))
        finally:
            await response.aclose()

    async def _http(self) -> httpx.AsyncClient:
        if self._trust is None:
            # Reading all certificates blocks too long for the loop.
            loop = asyncio.get_running_loop()
            self._trust = await loop.run_in_executor(self._threads, httpx.create_ssl_context)
        if self._client is None:
            self._client = httpx.AsyncClient(
                timeout=SEND_SECONDS,
                verify=self._trust,
                limits=httpx.Limits(max_keepalive_connections=0),
                follow_redirects=False,
                trust_env=False,
                # No compression: a small response must not unpack to a large one.
                headers={"user-agent": "strandline", "accept-encoding": "identity"},
            )
        return self._client


async def _says_done(response: httpx.Response) -> bool:
    """Whether the response says that all records were processed. Any other successful response counts as delivered."""
    received = b""
    try:
        async for chunk in response.aiter_raw():
            received += chunk
            if len(received) > MAX_ANSWER_BYTES:
                return False
        return _decoder.decode(received).done
    except (httpx.HTTPError, msgspec.MsgspecError):
        return False


def _resolve(host: str, port: int) -> list[Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ip_address(str(entry[4][0]).partition("%")[0]) for entry in found))


def _host(url: str) -> str:
    try:
        return httpx.URL(url).host
    except httpx.InvalidURL:
        return "an invalid address"
