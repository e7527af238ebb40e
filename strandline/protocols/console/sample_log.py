"""Keeps the history of the overview in an internal log, so that it survives a restart.

A record is the average of a minute. Ten of them are appended at a time (60 on an idle server with a replica), and the
rest when the server stops. A server that is killed loses the last minutes; one that cannot write keeps its history in
memory.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from strandline.engine import Batch, Config, Engine
from strandline.engine.errors import EngineError
from strandline.protocols.console.wire import SampleAnswer
from strandline.service.catalog import SAMPLE_LOG
from strandline.service.frequent_warning import FrequentWarning

log = logging.getLogger(__name__)
_lost = FrequentWarning(log, "%d times, the history of the overview could not be written: %s")

#: The minutes of a week.
MAX_RECORDS = 7 * 1440
KEPT_MS = MAX_RECORDS * 60_000
#: The minutes that are appended together, and those of a server with a replica that got no request in them.
TOGETHER = 10
TOGETHER_IDLE = 60
_PAGE = 2_000

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(SampleAnswer).decode


class SampleLog:
    """The first append creates the log."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._config = Config(durability="disk", ttl_ms=KEPT_MS, cap_records=MAX_RECORDS)

    def read(self) -> list[SampleAnswer]:
        """All samples, oldest first. May wait for the disk. A log that cannot be read is an empty one."""
        found: list[SampleAnswer] = []
        try:
            kept = self._engine.find(SAMPLE_LOG)
            after, caught_up = 0, kept is None
            while not caught_up:
                assert kept is not None
                page = kept.read(after, limit=_PAGE)
                found += [_decode(data) for data in page.data]
                after, caught_up = page.next_after, page.caught_up
        except (EngineError, OSError, msgspec.MsgspecError) as error:
            log.error("cannot read the history of the overview, so it starts empty: %s", error)
        return found

    def append(self, samples: Sequence[SampleAnswer]) -> bool:
        """Whether the samples are in the journal. An error is logged: the history stays in memory."""
        if not self._engine.writable:
            return False  # the reason was logged when it happened
        try:
            if self._engine.find(SAMPLE_LOG) is None:
                self._engine.create(SAMPLE_LOG, self._config)
            self._engine.log(SAMPLE_LOG).append(Batch([_encode(sample) for sample in samples]))
        except EngineError as error:
            _lost(error)
            return False
        return True
