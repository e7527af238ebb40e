"""What an idempotent producer knows: its id, its epoch, and the number of its next request."""

from __future__ import annotations

import random
import secrets
import time
from typing import Any

from strandline.client.errors import Conflict, Fenced, Refused
from strandline.client.retry import UNCERTAIN

#: No producer ever gets there: a request with this number is refused, and the refusal tells what is known.
FAR_SEQ = (1 << 53) - 1
#: Epochs are made of the time and of chance, so that two programs that begin at once do not choose the same one.
CHANCE_BITS = 11


class ProducerState:
    """Requests are numbered within an epoch. Whoever begins with a higher epoch fences off all others of its id."""

    def __init__(self, id: str | None, epoch: int | None, seq: int) -> None:
        if not id and epoch is not None:
            raise ValueError("an epoch needs the id of the producer that it is of")
        self.id = id or f"producer-{secrets.token_hex(12)}"
        # An id that was made just now is known to nobody.
        self.epoch: int | None = epoch if id else 0
        self.seq = seq
        self._fenced: Fenced | None = None

    def check(self) -> None:
        """Raises if another one has taken over."""
        if self._fenced is not None:
            raise self._fenced

    def probe(self) -> dict[str, Any]:
        """The headers of a request that is refused, and so tells the epoch."""
        return self._headers(0, FAR_SEQ)

    def learn(self, error: Refused) -> None:
        """What the refusal of a probe tells."""
        known = 0
        if isinstance(error, Fenced):
            known = int(error.headers["producer-epoch"])
        elif not isinstance(error, Conflict) or "producer-expected-seq" not in error.headers:
            raise error
        now = (time.time_ns() // 1_000_000 << CHANCE_BITS) + random.getrandbits(CHANCE_BITS)
        self.epoch = max(known + 1, now)
        self.seq = 0

    def headers(self) -> dict[str, Any]:
        assert self.epoch is not None
        return self._headers(self.epoch, self.seq)

    def _headers(self, epoch: int, seq: int) -> dict[str, Any]:
        return {"producer-id": self.id, "producer-epoch": epoch, "producer-seq": seq}

    def succeeded(self) -> None:
        self.seq += 1

    def failed(self, error: BaseException) -> None:
        """A refused request has not happened, and its number is free. One of which nobody knows may still be on its
        way: a new epoch keeps it from ever counting after what is appended next."""
        if isinstance(error, Fenced):
            self._fenced = error
        elif not isinstance(error, Refused) or error.status in (500, *UNCERTAIN):
            assert self.epoch is not None
            self.epoch += 1
            self.seq = 0
