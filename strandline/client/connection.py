"""The addresses of servers: URLs and headers of requests, exceptions for httpx errors, and which server to use."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from functools import lru_cache
from urllib.parse import urlsplit

import httpx

from strandline.client.caller_trace import headers_of_trace
from strandline.client.calls import Request
from strandline.client.errors import BadUrl, Refused, StrandlineError, TimedOut, Unreachable

#: A server that does not accept a connection within this time is considered unreachable.
CONNECT_SECONDS = 10.0
#: The same if there are other servers to ask. A machine that is gone does not refuse connections, it does not answer.
CONNECT_SECONDS_OF_SEVERAL = 3.0
#: The server closes idle connections after 5 s. The client closes them earlier: if the server closed a connection just
#: when a request is sent, the client could not know whether the request was executed.
IDLE_SECONDS = 4.0
LIMITS = httpx.Limits(max_connections=1000, max_keepalive_connections=100, keepalive_expiry=IDLE_SECONDS)

#: Errors that occur before any part of a request is sent.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)

#: The codes of a server whose place another one may have taken: it waits for its turn, cannot write any more, or does
#: not reach the replica.
_OF_OTHERS = frozenset(("standby", "read_only", "replica_away", "replica_behind"))
#: The statuses of a proxy that does not reach its server.
_OF_PROXIES = frozenset((502, 503, 504))


class Address:
    """The URL of a server, and the headers of every request to it."""

    def __init__(
        self,
        url: str,
        key: str | None,
        user: str | None,
        headers: Mapping[str, str] | None,
        connect_seconds: float = CONNECT_SECONDS,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadUrl(f"invalid server URL {url!r}: expected http://HOST or https://HOST")
        self.url = url.rstrip("/")
        self._url = httpx.URL(self.url)
        self._path = parts.path.rstrip("/")
        self._connect_seconds = connect_seconds
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

    def is_at(self, place: str) -> bool:
        """Whether the server is at ``host:port``."""
        port = self._url.port or (443 if self._url.scheme == "https" else 80)
        return f"{self._url.host}:{port}" == place

    def verify(self) -> ssl.SSLContext | bool:
        # Loading certificates takes longer than many requests, and plain HTTP does not need them.
        return self._url.scheme == "https"

    def _made_url(self, target: str) -> httpx.URL:
        return self._url.copy_with(raw_path=(self._path + target).encode("ascii"))

    def request(self, request: Request, timeout: float, silence: float | None = None) -> httpx.Request:
        """The request for httpx. ``silence`` limits the pauses within an answer; None applies the limit for the start
        of the answer."""
        read = timeout + request.waits if silence is None else silence
        timeouts = {"connect": min(timeout, self._connect_seconds), "read": read, "write": timeout, "pool": timeout}
        return httpx.Request(
            request.method,
            self._url_of(request.target),
            headers=self._headers_of(request),
            content=request.body if request.body or request.method not in ("GET", "HEAD", "DELETE") else None,
            extensions={"timeout": timeouts},
        )

    def _headers_of(self, request: Request) -> list[tuple[bytes, bytes]]:
        """The headers of a request. Its own headers replace the common ones, and both replace those that name the
        trace of the calling program."""
        own = {name for name, _ in request.headers}
        headers = [*(header for header in self._headers if header[0] not in own), *request.headers]
        trace = headers_of_trace()
        if trace:
            given = {name for name, _ in headers}
            headers += [header for header in trace if header[0] not in given]
        return headers

    def failure(self, error: httpx.HTTPError | httpx.InvalidURL, request: Request) -> StrandlineError:
        """The exception for an httpx error."""
        sent = not isinstance(error, _NOT_SENT)
        what = f"the server at {self.url} does not answer: {request.method} {request.target.partition('?')[0]}"
        if isinstance(error, httpx.TimeoutException):
            return TimedOut(f"{what}: timed out ({type(error).__name__})", sent=sent)
        return Unreachable(f"{what}: {error or type(error).__name__}", sent=sent)


class Servers:
    """One server, or several of which one answers at a time: a leader and its standbys. All requests go to ``current``
    until it fails. Threads and tasks may share an object."""

    def __init__(
        self,
        urls: str | Sequence[str],
        key: str | None = None,
        user: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """``urls``: a list, or a text with commas in between. Raises BadUrl."""
        texts = dict.fromkeys(url.strip() for url in (urls.split(",") if isinstance(urls, str) else urls))
        if not texts:
            raise BadUrl("the list of server URLs is empty")
        seconds = CONNECT_SECONDS if len(texts) == 1 else CONNECT_SECONDS_OF_SEVERAL
        self.addresses = [Address(url, key, user, headers, seconds) for url in texts]
        self.current = self.addresses[0]
        #: Those that did not answer when they were tried last.
        self._silent: set[Address] = set()

    def __len__(self) -> int:
        return len(self.addresses)

    def address_of(self, request: Request) -> Address:
        """Return the server that a request is sent to now."""
        if request.server is None:
            return self.current
        return next(address for address in self.addresses if address.url == request.server)

    def verify(self) -> ssl.SSLContext | bool:
        return any(address.verify() for address in self.addresses)

    def failed(self, address: Address, error: StrandlineError) -> StrandlineError:
        """Return the error of a server. If another server may answer, the following requests go to the leader that a
        standby names, or else to the next one."""
        if len(self.addresses) > 1 and _another_may_answer(error):
            error.server = address.url
            if isinstance(error, Refused):
                self._silent.discard(address)
            else:
                self._silent.add(address)
            # Another request may have moved on already.
            if self.current is address:
                self.current = self._leader(error) or self._next(address)
        return error

    def _next(self, address: Address) -> Address:
        return self.addresses[(self.addresses.index(address) + 1) % len(self.addresses)]

    def _leader(self, error: StrandlineError) -> Address | None:
        """The leader that a standby names, if it is one of the servers. Standbys name a leader that is lost until one
        of them takes over."""
        leader = error.detail.get("leader") if isinstance(error, Refused) else None
        if not isinstance(leader, str):
            return None
        found = next((each for each in self.addresses if each.is_at(leader)), None)
        return None if found in self._silent else found


def _another_may_answer(error: StrandlineError) -> bool:
    if isinstance(error, Refused):
        code = error.code.lower()
        return (error.status == 503 and code in _OF_OTHERS) or (error.status in _OF_PROXIES and not code)
    return isinstance(error, Unreachable)
