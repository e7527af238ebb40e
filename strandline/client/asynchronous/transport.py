"""Requests on their way: sent, tried again where that is safe, and their answers as they are or as a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TypeVar

import httpx

from strandline.client.calls import Answer, Reading, Request, get
from strandline.client.concurrency import async_sleep
from strandline.client.connection import LIMITS, Address, failure
from strandline.client.errors import Refused, StrandlineError, Unreachable, refusal
from strandline.client.retry import Patience, Tries
from strandline.client.server_events import Event, EventParser

T = TypeVar("T")

EVENTS = (b"accept", b"text/event-stream")


class AsyncTransport:
    """The connections to one server, and the rules by which they are used."""

    def __init__(
        self,
        address: Address,
        timeout: float,
        patience: Patience,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.address = address
        self.timeout = timeout
        self.patience = patience
        # Straight to the transport: what an httpx client adds to a request (cookies, redirects, merging of headers)
        # is not needed here, and takes more time than all the rest.
        self._http = transport or httpx.AsyncHTTPTransport(verify=address.verify(), limits=LIMITS)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def call(self, request: Request, sign: Callable[[Request], Request] | None = None) -> Answer:
        """The answer, if it is a success. ``sign`` is called for every try: a signature counts once."""
        tries = Tries(self.patience, request.repeatable)
        while True:
            try:
                return await self.once(request if sign is None else sign(request))
            except StrandlineError as error:
                wait = tries.failed(error)
            await async_sleep(wait)

    async def ask(self, request: Request, reading: Reading[T]) -> T:
        return reading(await self.call(request))

    async def once(self, request: Request) -> Answer:
        """Without a second try."""
        try:
            response = await self._http.handle_async_request(self.address.request(request, self.timeout))
            try:
                body = await response.aread()
            finally:
                await response.aclose()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise failure(error, request) from error
        status = response.status_code
        if 200 <= status < 300 or status in request.accepts:
            return Answer(status, response.headers, body)
        raise refusal(status, response.headers, body)

    async def ready(self) -> bool:
        try:
            return (await self.once(get("/v0/ready"))).status == 200
        except (Refused, Unreachable):
            return False

    async def listen(self, request: Request, silence: float) -> AsyncEventSource:
        """Open an event stream, in one try. It counts as dead when nothing comes for ``silence`` seconds."""
        wanted = Request(request.method, request.target, request.body, (*request.headers, EVENTS))
        try:
            response = await self._http.handle_async_request(self.address.request(wanted, self.timeout, silence))
            if response.status_code != 200:
                try:
                    body = await response.aread()
                finally:
                    await response.aclose()
                raise refusal(response.status_code, response.headers, body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise failure(error, request) from error
        return AsyncEventSource(response, request)


class AsyncEventSource:
    """An open event stream."""

    def __init__(self, response: httpx.Response, request: Request) -> None:
        self._response = response
        self._request = request
        self._chunks: AsyncIterator[bytes] = response.aiter_bytes()
        self._parser = EventParser()
        self._events: list[Event] = []

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    async def next(self) -> Event:
        """The next event. Raises Unreachable when the stream ends, however it does."""
        while not self._events:
            try:
                chunk = await self._chunks.__anext__()
            except StopAsyncIteration:
                raise Unreachable("the server ended the event stream", sent=True) from None
            except httpx.HTTPError as error:
                raise failure(error, self._request) from error
            self._events = self._parser.feed(chunk)[::-1]
        return self._events.pop()

    async def aclose(self) -> None:
        try:
            await self._response.aclose()
        except httpx.HTTPError:
            pass
