"""Sends requests, repeats them where that is safe, and returns their answers whole or as a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TypeVar

import httpx
import msgspec

from strandline.client.calls import Answer, AnswerReader, Request, get
from strandline.client.connection import LIMITS, Address, Servers
from strandline.client.errors import Refused, StrandlineError, Unreachable, refusal
from strandline.client.retry import NO_PATIENCE, Patience, Tries
from strandline.client.server_events import Event, EventParser
from strandline.client.task_concurrency import async_sleep

T = TypeVar("T")

EVENTS = (b"accept", b"text/event-stream")


class AsyncTransport:
    """The connections to one server, or to several of which one answers. Sends requests over them and repeats failed
    ones."""

    def __init__(
        self,
        servers: Servers,
        timeout: float,
        patience: Patience,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.servers = servers
        self.timeout = timeout
        self.patience = patience
        # Use the transport directly. An httpx client also handles cookies, redirects and header merging, which this
        # client does not need and which takes longer than everything else.
        self._http = transport or httpx.AsyncHTTPTransport(verify=servers.verify(), limits=LIMITS)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def call(
        self,
        request: Request,
        sign: Callable[[Request], Request] | None = None,
        patience: Patience | None = None,
    ) -> Answer:
        """Send a request, and return its answer if it succeeds. ``sign`` is called for every attempt, because a
        signature is valid once. ``patience`` overrides the patience of the transport."""
        tries = Tries(patience or self.patience, request.repeatable, servers=len(self.servers))
        while True:
            try:
                return await self.once(request if sign is None else sign(request))
            except StrandlineError as error:
                wait = tries.failed(error)
            await async_sleep(wait)

    async def ask(self, request: Request, reading: AnswerReader[T]) -> T:
        return reading(await self.call(request))

    async def once(self, request: Request) -> Answer:
        """Send a request without retries."""
        address = self.servers.address_of(request)
        try:
            response = await self._http.handle_async_request(address.request(request, self.timeout))
            try:
                body = await response.aread()
            finally:
                await response.aclose()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self.servers.failed(address, address.failure(error, request)) from error
        status = response.status_code
        if 200 <= status < 300 or status in request.accepts:
            return Answer(status, response.headers, body)
        raise self.servers.failed(address, refusal(status, response.headers, body))

    async def ready(self) -> bool:
        try:
            return (await self.call(get("/v0/ready"), patience=NO_PATIENCE)).status == 200
        except (Refused, Unreachable):
            return False

    async def stream(self, request: Request, silence: float) -> AsyncByteStream:
        """Send a request once, and return the bytes of the answer as they arrive. The stream is considered dead when
        nothing arrives for ``silence`` seconds."""
        address = self.servers.address_of(request)
        try:
            response = await self._http.handle_async_request(address.request(request, self.timeout, silence))
            if response.status_code != 200:
                try:
                    body = await response.aread()
                finally:
                    await response.aclose()
                raise self.servers.failed(address, refusal(response.status_code, response.headers, body))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self.servers.failed(address, address.failure(error, request)) from error
        return AsyncByteStream(response, request, self.servers, address)

    async def listen(self, request: Request, silence: float) -> AsyncEventSource:
        """Open an event stream, without retries. It is considered dead when nothing arrives for ``silence`` seconds."""
        wanted = msgspec.structs.replace(request, headers=(*request.headers, EVENTS))
        return AsyncEventSource(await self.stream(wanted, silence))


class AsyncByteStream:
    """The body of an answer as it arrives."""

    def __init__(self, response: httpx.Response, request: Request, servers: Servers, address: Address) -> None:
        self._response = response
        self._request = request
        self._servers = servers
        self._address = address
        self._chunks: AsyncIterator[bytes] = response.aiter_bytes()

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    async def next(self) -> bytes:
        """The next bytes; empty at the end. Raises Unreachable when the connection breaks."""
        try:
            return await self._chunks.__anext__()
        except StopAsyncIteration:
            return b""
        except httpx.HTTPError as error:
            raise self._servers.failed(self._address, self._address.failure(error, self._request)) from error

    async def aclose(self) -> None:
        try:
            await self._response.aclose()
        except httpx.HTTPError:
            pass


class AsyncEventSource:
    """An open event stream."""

    def __init__(self, stream: AsyncByteStream) -> None:
        self._stream = stream
        self._parser = EventParser()
        self._events: list[Event] = []

    @property
    def headers(self) -> Mapping[str, str]:
        return self._stream.headers

    async def next(self) -> Event:
        """The next event. Raises Unreachable when the stream ends for any reason."""
        while not self._events:
            chunk = await self._stream.next()
            if not chunk:
                raise Unreachable("the server ended the event stream", sent=True)
            self._events = self._parser.feed(chunk)[::-1]
        return self._events.pop()

    async def aclose(self) -> None:
        await self._stream.aclose()
