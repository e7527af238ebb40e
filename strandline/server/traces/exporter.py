"""Sends spans to the collector, from a thread of its own.

Requests only add their spans to a queue. The queue is bounded: while the collector is away or too slow, further spans
are dropped and counted. Everything that goes wrong is logged once, until it goes well again.
"""

from __future__ import annotations

import gzip
import logging
import threading
from collections import deque
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from strandline.late_import import LateModule
from strandline.server.traces.otlp import TraceMessages
from strandline.spans import Span

if TYPE_CHECKING:
    import httpx
else:
    httpx = LateModule("httpx")

log = logging.getLogger(__name__)

#: The spans that may wait for the collector: about 10 MB.
MAX_WAITING = 8192
#: The maximum number of spans in one request.
MAX_BATCH = 512
#: How long the collector may take for a request.
TIMEOUT_SECONDS = 10.0
#: The pause after a failure, unless the collector names another one. It doubles up to the longest one.
FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 30.0
#: How long a server that stops waits for the collector to take the last spans.
CLOSE_SECONDS = 3.0
#: The collector may take the same spans later. After other errors it never will.
RETRIED = frozenset((429, 502, 503, 504))


class ExportStats(NamedTuple):
    """Numbers of spans since the start."""

    sent: int
    dropped: int
    waiting: int


class NotTaken(Exception):
    """The collector did not take the spans. ``retry_after`` is the seconds after which it may; None: it never will."""

    def __init__(self, message: str, retry_after: float | None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Exporter:
    """``collect`` may be called on any thread. Spans wait for others for ``delay`` seconds, unless there are enough."""

    def __init__(self, url: str, headers: Mapping[str, str], messages: TraceMessages, delay: float) -> None:
        self._url = url
        self._headers = {
            "content-type": "application/x-protobuf",
            "content-encoding": "gzip",
            # A collector that traces its own requests, perhaps by way of this server, does not trace these.
            "traceparent": "00-00000000000000000000000000000001-0000000000000001-00",
            **headers,
        }
        self._messages = messages
        self._delay = delay
        self._waiting: deque[Span] = deque()
        self._batch: list[Span] = []
        self._lock = threading.Lock()
        self._sent = self._dropped = 0
        self._failing = False
        self._pause = 0.0
        self._wake = threading.Event()
        self._closing = threading.Event()
        #: When closing must end.
        self._until = 0.0
        self._thread = threading.Thread(target=self._run, name="strandline-traces", daemon=True)

    @property
    def stats(self) -> ExportStats:
        return ExportStats(self._sent, self._dropped, len(self._waiting) + len(self._batch))

    def collect(self, span: Span) -> None:
        waiting = self._waiting
        if len(waiting) >= MAX_WAITING:
            self._drop(1)
            return
        waiting.append(span)
        if len(waiting) == MAX_BATCH:
            self._wake.set()

    def start(self) -> None:
        self._thread.start()

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Send what is waiting, for a limited time, and stop."""
        if not self._thread.is_alive():
            return
        self._until = monotonic() + seconds
        self._closing.set()
        self._wake.set()
        self._thread.join(seconds)
        left = self.stats.waiting
        if left:
            log.warning("the server stops before the trace collector %s has the last %d spans", self._url, left)

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with httpx.Client(headers=self._headers) as client:
            while not self._closing.is_set():
                if self._pause:
                    self._closing.wait(self._pause)
                else:
                    self._wake.wait(self._delay)
                self._wake.clear()
                self._send_waiting(client)
            # What ended during the last request to the collector.
            self._send_waiting(client)

    def _send_waiting(self, client: httpx.Client) -> None:
        """Send what is waiting now, up to the first failure. Spans that end meanwhile wait for others."""
        left = len(self._waiting)
        while self._batch or left:
            if not self._batch:
                self._batch = self._next_batch()
                left = max(left - len(self._batch), 0)
            closing = self._closing.is_set()
            seconds = self._until - monotonic() if closing else TIMEOUT_SECONDS
            if seconds <= 0:
                return
            try:
                self._send(client, seconds)
            except NotTaken as error:
                self._failed(error)
                if error.retry_after is not None:
                    self._pause = error.retry_after or min(max(self._pause * 2, FIRST_PAUSE_SECONDS), MAX_PAUSE_SECONDS)
                    return
                self._drop(len(self._batch))
            else:
                self._sent += len(self._batch)
            self._batch, self._pause = [], 0.0

    def _next_batch(self) -> list[Span]:
        waiting = self._waiting
        return [waiting.popleft() for _ in range(min(len(waiting), MAX_BATCH))]

    def _send(self, client: httpx.Client, seconds: float) -> None:
        """Raises NotTaken."""
        body = gzip.compress(self._messages.request(self._batch), compresslevel=1)
        try:
            response = client.post(self._url, content=body, timeout=seconds)
        except Exception as error:  # whatever it is, it must not end the thread
            raise NotTaken(f"does not answer: {error or type(error).__name__}", 0.0) from None
        status = response.status_code
        if status in RETRIED:
            raise NotTaken(f"answered {status}", _retry_after(response))
        if not response.is_success:
            raise NotTaken(f"answered {status}: {_shown(response.text)}", None)
        try:
            number, why = self._messages.rejected(response.content) if response.content else (0, "")
        except ValueError:
            raise NotTaken("answered with something that is not OTLP: check the URL", None) from None
        if number:
            # The others have been taken.
            self._sent -= number
            self._drop(number)
            self._warn(f"rejected {number} spans: {_shown(why)}")
        else:
            self._succeeded()

    # --- what went wrong ---------------------------------------------------------------------------------------------

    def _drop(self, number: int) -> None:
        with self._lock:
            self._dropped += number

    def _failed(self, error: NotTaken) -> None:
        self._warn(str(error))

    def _warn(self, what: str) -> None:
        if not self._failing:
            self._failing = True
            log.warning(
                "the trace collector %s %s; requests continue, and spans that it does not take in time are dropped",
                self._url,
                what,
            )

    def _succeeded(self) -> None:
        if self._failing:
            self._failing = False
            log.info("the trace collector %s takes spans again; %d were dropped so far", self._url, self._dropped)


def _retry_after(response: httpx.Response) -> float:
    """The seconds that the collector asks to wait; 0: it does not say."""
    value = response.headers.get("retry-after", "")
    return min(float(value), MAX_PAUSE_SECONDS) if value.isdecimal() else 0.0


def _shown(text: str) -> str:
    return text.strip()[:200] or "no reason given"
