"""The address of a server: URLs and headers of requests, and the exceptions for errors of httpx."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

import httpx

from strandline.client.calls import Request
from strandline.client.errors import BadUrl, StrandlineError, TimedOut, Unreachable

#: A server that does not take a connection within this time is not there.
CONNECT_SECONDS = 10.0
#: Idle connections are closed before the server closes them, which it does after 5 s: a request that meets such a
#: close on its way could not be told from one that was done.
IDLE_SECONDS = 4.0
LIMITS = httpx.Limits(max_connections=1000, max_keepalive_connections=100, keepalive_expiry=IDLE_SECONDS)

#: These happen before anything of a request has left.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


class Address:
    """Where the server is, and what every request to it says."""

    def __init__(self, url: str, key: str | None, user: str | None, headers: Mapping[str, str] | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadUrl(f"the URL of a server begins with http:// or https://, which {url!r} does not")
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
        # Most programs ask for the same few things again and again, and taking an address apart costs as much as
        # sending a request.
        self._url_of = lru_cache(maxsize=1024)(self._made_url)

    @property
    def host(self) -> str:
        """As requests say it in their ``Host``."""
        return dict(self._headers)[b"host"].decode()

    def verify(self) -> ssl.SSLContext | bool:
        # Loading certificates that nobody looks at takes longer than many requests.
        return self._url.scheme == "https"

    def _made_url(self, target: str) -> httpx.URL:
        return self._url.copy_with(raw_path=(self._path + target).encode("ascii"))

    def request(self, request: Request, timeout: float, silence: float | None = None) -> httpx.Request:
        """As httpx sends it. ``silence`` is how long the answer may pause once it has begun; None: no longer than it
        may take to begin."""
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
        """What a request says itself counts, in place of what every request says."""
        own = {name for name, _ in request.headers}
        return [*(header for header in self._headers if header[0] not in own), *request.headers]

    def failure(self, error: httpx.HTTPError | httpx.InvalidURL, request: Request) -> StrandlineError:
        """The exception for an error of httpx."""
        sent = not isinstance(error, _NOT_SENT)
        what = f"the server at {self.url} does not answer: {request.method} {request.target.partition('?')[0]}"
        if isinstance(error, httpx.TimeoutException):
            return TimedOut(f"{what}: no answer in time ({type(error).__name__})", sent=sent)
        return Unreachable(f"{what}: {error or type(error).__name__}", sent=sent)
