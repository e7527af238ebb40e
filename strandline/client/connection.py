"""The address of a server: URLs and headers of requests, and exceptions for httpx errors."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

import httpx

from strandline.client.calls import Request
from strandline.client.errors import BadUrl, StrandlineError, TimedOut, Unreachable

#: A server that does not accept a connection within this time is considered unreachable.
CONNECT_SECONDS = 10.0
#: The server closes idle connections after 5 s. The client closes them earlier: if the server closed a connection just
#: when a request is sent, the client could not know whether the request was executed.
IDLE_SECONDS = 4.0
LIMITS = httpx.Limits(max_connections=1000, max_keepalive_connections=100, keepalive_expiry=IDLE_SECONDS)

#: Errors that occur before any part of a request is sent.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


class Address:
    """The URL of a server, and the headers of every request to it."""

    def __init__(self, url: str, key: str | None, user: str | None, headers: Mapping[str, str] | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadUrl(f"invalid server URL {url!r}: expected http://HOST or https://HOST")
        self.url = url.rstrip("/")
        self._url = httpx.URL(self.url)
        self._path = parts.path.rstrip("/")
        every = {"host": parts.netloc.rpartition("@")[2], "accept": "*/*"}
        if key is not None:
            every["authorization"] = f"Bearer {key}"
        if user is not None:
            every["strandline-user"] = user
        every |= {name.lower(): value for name, value in (headers or {}).items()}
        self._headers = [(name.encode(), value.encode()) for name, value in every.items()]
        # Programs request the same few paths repeatedly, and parsing a URL costs as much as sending a request.
        self._url_of = lru_cache(maxsize=1024)(self._made_url)

    @property
    def host(self) -> str:
        """The host that requests send in the ``Host`` header."""
        return dict(self._headers)[b"host"].decode()

    def verify(self) -> ssl.SSLContext | bool:
        # Loading certificates takes longer than many requests, and plain HTTP does not need them.
        return self._url.scheme == "https"

    def _made_url(self, target: str) -> httpx.URL:
        return self._url.copy_with(raw_path=(self._path + target).encode("ascii"))

    def request(self, request: Request, timeout: float, silence: float | None = None) -> httpx.Request:
        """The request for httpx. ``silence`` limits the pauses within an answer; None applies the limit for the start
        of the answer."""
        read = timeout + request.waits if silence is None else silence
        timeouts = {"connect": min(timeout, CONNECT_SECONDS), "read": read, "write": timeout, "pool": timeout}
        return httpx.Request(
            request.method,
            self._url_of(request.target),
            headers=self._headers_of(request),
            content=request.body if request.body or request.method not in ("GET", "HEAD", "DELETE") else None,
            extensions={"timeout": timeouts},
        )

    def _headers_of(self, request: Request) -> list[tuple[bytes, bytes]]:
        """The headers of a request. Its own headers replace the common ones."""
        own = {name for name, _ in request.headers}
        return [*(header for header in self._headers if header[0] not in own), *request.headers]

    def failure(self, error: httpx.HTTPError | httpx.InvalidURL, request: Request) -> StrandlineError:
        """The exception for an httpx error."""
        sent = not isinstance(error, _NOT_SENT)
        what = f"no answer from {self.url} to {request.method} {request.target.partition('?')[0]}"
        if isinstance(error, httpx.TimeoutException):
            return TimedOut(f"{what}: timed out ({type(error).__name__})", sent=sent)
        return Unreachable(f"{what}: {error or type(error).__name__}", sent=sent)
