"""Finite responses that worker threads make piece by piece, as fast as the reader takes them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from itertools import chain

from strandline.engine.errors import EngineError
from strandline.service.access import Access
from strandline.service.http import StreamEncoder
from strandline.service.kernel import Kernel
from strandline.service.live import LiveResponse
from strandline.service.problems import Headers, Refusal
from strandline.service.workers import WorkClass

log = logging.getLogger(__name__)


class PiecewiseResponse(LiveResponse):
    """The iterator ``pieces`` runs on a thread, and makes a piece when the reader has taken the one before, so a slow
    reader holds only one. The first piece is made before the answer begins, so that an error can still have a status.
    A later error resets the connection: the reader must not take the pieces before it for the whole answer.

    ``subject`` names the answer in log lines.
    """

    __slots__ = (
        "_complete", "_making", "_pieces", "_post", "_ready", "_subject", "_threads", "content_type", "headers",
    )  # fmt: skip
    finite = True
    heartbeat_seconds = 0.0

    def __init__(
        self,
        kernel: Kernel,
        threads: WorkClass,
        access: Access,
        subject: str,
        content_type: bytes,
        headers: Headers,
        first: bytes,
        pieces: Iterator[bytes],
    ) -> None:
        super().__init__(kernel.live, access)
        self.content_type = content_type
        self.headers = headers
        self._post = kernel.hub.post
        self._threads = threads
        self._subject = subject
        self._pieces = pieces
        #: The next piece, once it is made.
        self._ready: bytes | None = first
        self._making = False
        #: Whether all pieces were made.
        self._complete = False

    def encode(self, encoder: StreamEncoder | None, headers: Headers) -> None:
        self.headers += headers
        if encoder is not None:
            assert self._ready is not None, "the response has begun"
            self._pieces, self._ready = encoder.encoded(chain((self._ready,), self._pieces)), None

    def greeting(self) -> bytes:
        return b""

    def begin(self) -> None:
        self.go_on()

    def leave(self) -> None:
        self._ready = None

    @property
    def waiting_bytes(self) -> int:
        return 0 if self._ready is None else len(self._ready)

    def go_on(self) -> None:
        if self._ready is not None and self.keeps_up:
            piece, self._ready = self._ready, None
            self.write(piece)
        if self.ended or self._ready is not None:
            return
        if self._complete:
            self.finish()
        elif not self._making and not self.paused_at:
            self._making = True
            try:
                made = self._threads.submit(partial(next, self._pieces, b""))
            except Exception as error:
                self._fail(error)
            else:
                made.add_done_callback(lambda made: self._post(partial(self._made, made)))

    def _made(self, made: Future[bytes]) -> None:
        self._making = False
        if self.ended:
            return
        try:
            piece = made.result()
        except Exception as error:
            self._fail(error)
        else:
            self._complete = not piece
            self._ready = piece or None
            self.go_on()

    def _fail(self, error: Exception) -> None:
        if isinstance(error, EngineError | Refusal):
            log.warning("reset the connection of a reader of %s: %s", self._subject, error)
        else:
            log.error("reset the connection of a reader of %s", self._subject, exc_info=error)
        self.end()
