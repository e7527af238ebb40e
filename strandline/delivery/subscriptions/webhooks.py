"""The door to the webhooks: sends a body to an address and tells what the answer was."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Protocol

import httpx
import msgspec

from strandline.delivery.subscriptions.addresses import Address, is_allowed, parse_url
from strandline.delivery.subscriptions.errors import AddressRejected

log = logging.getLogger(__name__)
# It tells every URL that it asks, and the path of a webhook is often as good as a password.
logging.getLogger("httpx").setLevel(logging.WARNING)

#: Everything together: finding the address, connecting, sending, and reading the answer.
SEND_SECONDS = 10.0
#: Requests under way at a time; further ones wait. Every subscription has at most a few.
MAX_UNDER_WAY = 256
#: Of an answer only so much is looked at.
MAX_ANSWER_BYTES = 64 << 10

#: Names that are looked up at a time. Threads of their own: a name server that does not answer must hold up nobody
#: but those who wait for it.
MAX_LOOKUPS = 8

Resolve = Callable[[str, int], list[Address]]


class Answer(msgspec.Struct, frozen=True):
    """What became of a delivery. ``done``: the receiver has dealt with everything that it was told of."""

    delivered: bool
    done: bool = False


class Courier(Protocol):
    """``deliver`` is called on the loop and returns at once; ``tell`` is called on the loop, later, exactly once."""

    def deliver(self, url: str, body: bytes, headers: Mapping[str, str], tell: Callable[[Answer], None]) -> None: ...

    def check(self, url: str) -> None:
        """Raise :class:`AddressRejected` if the URL shows that nothing may be sent there."""

    def stop(self) -> None:
        """Break off what is under way. Nobody is told of it any more."""


class _Done(msgspec.Struct):
    done: bool = False


_decoder = msgspec.json.Decoder(_Done)


class HttpCourier(Courier):
    """Connections are not kept: one that was made for a name must not serve another one at the same address.

    ``resolve`` finds the addresses of a name, on another thread; ``trust`` is whose certificates count. By default both
    as usual. ``private``: webhooks may go to this machine and to private networks. ``loopback``: to this machine.
    """

    def __init__(
        self,
        resolve: Resolve | None = None,
        trust: ssl.SSLContext | None = None,
        *,
        private: bool = False,
        loopback: bool = False,
    ) -> None:
        self._private = private
        self._loopback = loopback
        self._resolve = resolve or _resolve
        self._trust = trust
        self._threads = ThreadPoolExecutor(MAX_LOOKUPS, "strandline-lookup")
        self._client: httpx.AsyncClient | None = None
        self._slots = asyncio.Semaphore(MAX_UNDER_WAY)
        self._tasks: set[asyncio.Task[None]] = set()

    def check(self, url: str) -> None:
        parse_url(url, private=self._private, loopback=self._loopback)

    def deliver(self, url: str, body: bytes, headers: Mapping[str, str], tell: Callable[[Answer], None]) -> None:
        task = asyncio.get_running_loop().create_task(self._deliver(url, body, headers, tell))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _deliver(self, url: str, body: bytes, headers: Mapping[str, str], tell: Callable[[Answer], None]) -> None:
        async with self._slots:
            try:
                async with asyncio.timeout(SEND_SECONDS):
                    answer = await self._send(
                        parse_url(url, private=self._private, loopback=self._loopback), body, headers
                    )
            except Exception as error:  # whatever it is: it is tried again
                log.warning("a webhook at %s was not delivered: %s", _host(url), error or type(error).__name__)
                answer = Answer(delivered=False)
        tell(answer)

    async def _send(self, url: httpx.URL, body: bytes, headers: Mapping[str, str]) -> Answer:
        host, port = url.raw_host.decode("ascii"), url.port or (443 if url.scheme == "https" else 80)
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, self._resolve, host, port)
        addresses = [
            address for address in found if is_allowed(url, address, private=self._private, loopback=self._loopback)
        ]
        if not addresses:
            raise AddressRejected(
                "its name stands for no address that a webhook may be sent to; this machine needs "
                "streams.webhook_allow_loopback, private networks need streams.webhook_allow_private"
            )
        for address in addresses[:-1]:
            try:
                return await self._send_to(address, url, body, headers)
            except httpx.ConnectError:
                continue
        return await self._send_to(addresses[-1], url, body, headers)

    async def _send_to(self, address: Address, url: httpx.URL, body: bytes, headers: Mapping[str, str]) -> Answer:
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
                log.warning("a webhook at %s was answered with status %d", url.host, response.status_code)
                return Answer(delivered=False)
            return Answer(delivered=True, done=await _says_done(response))
        finally:
            await response.aclose()

    async def _http(self) -> httpx.AsyncClient:
        if self._trust is None:
            # Reading all certificates takes too long for the loop.
            loop = asyncio.get_running_loop()
            self._trust = await loop.run_in_executor(self._threads, httpx.create_ssl_context)
        if self._client is None:
            self._client = httpx.AsyncClient(
                timeout=SEND_SECONDS,
                verify=self._trust,
                limits=httpx.Limits(max_keepalive_connections=0),
                follow_redirects=False,
                trust_env=False,
                # A small answer that unpacks to a large one is nothing to wait for.
                headers={"user-agent": "strandline", "accept-encoding": "identity"},
            )
        return self._client


async def _says_done(response: httpx.Response) -> bool:
    """Whatever else the answer is: the webhook was taken."""
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
