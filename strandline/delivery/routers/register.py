"""The definitions of all routers, kept in a log of their own: one live record for each, the last one counts.

A definition names the epochs of its logs too, so that one of a log that has been removed, or made again under the same
name, is recognised when the server starts.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TypeVar

import msgspec

from strandline.delivery.routers.definition import Definition
from strandline.engine import Batch, Commit, Config, Engine, Log
from strandline.engine.errors import EngineError

NAME = "__routers__"
_CONFIG = Config(durability="fsync")
_PAGE = 1000

T = TypeVar("T")


class Entry(msgspec.Struct, frozen=True):
    """A definition as it is written down."""

    definition: Definition
    source_epoch: int
    dest_epoch: int


_decoder = msgspec.json.Decoder(Entry)


class Register:
    """Every change is journaled when it returns, and durable when ``durable`` is done. A definition is removed by
    deleting its record, so nothing but live ones is left in the log."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._seqs: dict[str, int] = {}

    def load(self) -> list[Entry]:
        """What is written down, in the order in which it was. Definitions that have been replaced are removed."""
        log = self._engine.find(NAME)
        if log is None:
            return []
        entries: dict[str, Entry] = {}
        replaced: list[int] = []
        after, caught_up = 0, False
        while not caught_up:
            page = log.read(after, _PAGE)
            for seq, data in zip(page.seqs, page.data, strict=True):
                entry = _decoder.decode(data)
                name = entry.definition.name
                if name in self._seqs:
                    replaced.append(self._seqs[name])
                self._seqs[name] = seq
                entries[name] = entry
            after, caught_up = page.next_after, page.caught_up
        if replaced:
            log.delete(seqs=replaced)
        return list(entries.values())

    def put(self, entry: Entry) -> None:
        """Write a definition down in place of an earlier one of this name."""
        name = entry.definition.name
        with self._engine.lock:
            log = self._log()
            seq = log.next_seq
            log.append(Batch([msgspec.json.encode(entry)], keys=[name]))
            before = self._seqs.get(name)
            self._seqs[name] = seq
            if before is not None:
                # A crash before this one leaves both; the later one counts.
                with suppress(EngineError):
                    log.delete(seqs=[before])

    def remove(self, names: Iterable[str]) -> None:
        seqs = [self._seqs[name] for name in names if name in self._seqs]
        if seqs:
            self._log().delete(seqs=seqs)
            for name in names:
                self._seqs.pop(name, None)

    def durable(self, value: T) -> Commit[T]:
        """The value, once everything that was written down so far is durable."""
        with self._engine.lock:
            return self._engine.later((), value, None)

    def _log(self) -> Log:
        log = self._engine.find(NAME)
        if log is None:
            self._engine.create(NAME, _CONFIG)
            log = self._engine.log(NAME)
        return log
