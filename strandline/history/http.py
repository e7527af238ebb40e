"""Talking to a server: what is tried again, how long, and what its refusals mean.

Asking is tried again by itself, because asking twice changes nothing. Everything else is tried once, and whoever knows
what it would mean decides whether to try again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import sleep
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from strandline.engine.errors import UnknownLog

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
#: How long to wait for a connection, and for the next bytes on one.
CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 60.0
#: What a server says that cannot answer now, or a proxy in front of one that is not there.
BUSY = frozenset((429, 502, 503, 504))
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

T = TypeVar("T")


class ServerFailure(Exception):
    """Something is wrong between here and the server."""


class BadUrl(ValueError):
    """It cannot be that of a server."""


class ServerUnreachable(ServerFailure):
    """It did not answer, as often as it was tried."""


class KeyRefused(ServerFailure):
    """The key is missing or wrong, or does not allow this."""


class LogReplaced(ServerFailure):
    """There is another log of this name by now."""


class RefusedByServer(ServerFailure):
    """Any other refusal. ``code`` is empty if what answered is no Strandline."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{message} ({status}{f' {code}' if code else ''})")
        self.status = status
        self.code = code


class ProgressConflict(ServerFailure):
    """A writer's progress is not what it was taken for; ``progress`` is what it is, None if there is none."""

    def __init__(self, message: str, progress: dict[str, Any] | None) -> None:
        super().__init__(f"{message} (it is {progress})")
        self.progress = progress


class Patience(msgspec.Struct, frozen=True, array_like=True):
    """How often something is tried, and how long it is waited in between, longer each time. By default the server may
    be away for most of a minute."""

    attempts: int = 16
    first_seconds: float = 0.1
    longest_seconds: float = 5.0

    def seconds(self, attempt: int) -> float:
        """How long to wait after the attempt of this number, from 1 on."""
        return float(min(self.first_seconds * 2.0 ** (attempt - 1), self.longest_seconds))


PATIENCE = Patience()
#: For seeing whether there is a server at all.
SHORT = Patience(attempts=5)


class Talker:
    """One per server and key. Safe to use from any thread."""

    def __init__(self, url: str, key: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadUrl(f"the url of a server begins with http:// or https://, which {url!r} does not")
        self.url = url.rstrip("/")
        self._http = httpx.Client(
            base_url=self.url,
            headers={"authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS),
            # Loading certificates that nobody looks at takes longer than most requests.
            verify=parts.scheme == "https",
            # No proxy leads to this very machine.
            trust_env=parts.hostname not in _LOOPBACK,
        )

    def close(self) -> None:
        self._http.close()

    def ask(self, path: str, params: dict[str, Any], patience: Patience) -> bytes:
        """The body of the answer to a GET."""
        return self.retried(lambda: self.once("GET", path, params=params), patience).content

    def once(self, method: str, path: str, **options: Any) -> httpx.Response:
        """The answer, if it is no refusal. Raises httpx.TransportError when there is none."""
        response = self._http.request(method, path, **options)
        check(response)
        return response

    @contextmanager
    def stream(self, path: str, params: dict[str, Any]) -> Iterator[Iterator[bytes]]:
        """The bytes of an answer as they come."""
        with self._http.stream("GET", path, params=params) as response:
            if not response.is_success:
                response.read()
                check(response)
            yield response.iter_raw()

    def retried(self, act: Callable[[], T], patience: Patience) -> T:
        """What it gives, tried again as long as the server is not there or busy."""
        attempt = 0
        while True:
            try:
                return act()
            except (httpx.TransportError, Busy) as error:
                attempt += 1
                self.wait(attempt, error, patience)

    def wait(self, attempt: int, error: Exception, patience: Patience) -> None:
        """Wait before trying again; raises when that was enough."""
        if attempt >= patience.attempts:
            if isinstance(error, Busy):
                raise error.refusal from error
            why = str(error) or type(error).__name__
            raise ServerUnreachable(f"the server at {self.url} does not answer: {why}") from error
        asked = error.seconds if isinstance(error, Busy) else 0.0
        sleep(max(patience.seconds(attempt), min(asked, patience.longest_seconds)))


class Busy(Exception):
    """The server did nothing of what was asked, and may do it later."""

    def __init__(self, refusal: ServerFailure, seconds: float) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal
        self.seconds = seconds


class _Error(msgspec.Struct, frozen=True):
    code: str = ""
    message: str = ""
    detail: dict[str, Any] = {}


class _ErrorAnswer(msgspec.Struct):
    error: _Error = _Error()


def check(response: httpx.Response) -> None:
    """Raise what a refusal means."""
    if response.is_success:
        return
    try:
        error = msgspec.json.decode(response.content, type=_ErrorAnswer).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        error = _Error()
    if error.code == "log_not_found":
        raise UnknownLog(str(error.detail.get("log", "")))
    status = response.status_code
    failure = _failure(status, error, str(response.request.url))
    if status in BUSY:
        after = response.headers.get("retry-after", "")
        raise Busy(failure, float(after) if after.isdigit() else 0.0)
    raise failure


def _failure(status: int, error: _Error, url: str) -> ServerFailure:
    if error.code == "epoch_changed":
        return LogReplaced(error.message)
    if error.code == "progress_conflict":
        return ProgressConflict(error.message, error.detail.get("progress"))
    if status in (401, 403):
        return KeyRefused(error.message or f"{url} asks for another key")
    return RefusedByServer(status, error.code, error.message or f"{url} is not what a Strandline server has")


def place(kind: str, name: str) -> str:
    """The path of a log. Everything in the name is escaped that means something in a path."""
    return f"/arrow/{kind}/{quote(name, safe='').replace('.', '%2E')}"


# --- those that a process talks to ---------------------------------------------------------------------------------

_lock = threading.Lock()
_talkers: dict[tuple[int, str, str | None], Talker] = {}


def talker(url: str, key: str | None) -> Talker:
    """The one for this server and key, which pieces share that are read by one process; a child has its own."""
    with _lock:
        known = (os.getpid(), url, key)
        if known not in _talkers:
            _talkers[known] = Talker(url, key)
        return _talkers[known]
