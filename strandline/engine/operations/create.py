"""Create a log. Its creation, notes and first records are one step: after a crash, all of them exist or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from strandline.engine.commit import Commit
from strandline.engine.errors import BadRequest, LogExists
from strandline.engine.journal.bodies import Extras, ForkPoint
from strandline.engine.journal.frame import Encoded, encode_append
from strandline.engine.log import Log
from strandline.engine.operations.append import check_room, publish_later
from strandline.engine.operations.change import config_frame, note_frame
from strandline.engine.operations.journaled import begin_volatile
from strandline.engine.record import Batch, Config, check_name
from strandline.engine.state.block import Block
from strandline.engine.state.forks import ForkBase, time_at
from strandline.engine.state.logbook import Logbook
from strandline.engine.state.notes import check_changes, check_fits

if TYPE_CHECKING:
    from strandline.engine.engine import Engine


def create(
    engine: Engine, name: str, config: Config, notes: Mapping[str, Any] | None, batch: Batch | None
) -> Commit[Log]:
    """See :meth:`Engine.create`."""
    check_name(name)
    creation = _Creation(engine, notes, batch)
    with engine.lock:
        return creation.make(name, config)


def fork(
    engine: Engine,
    name: str,
    source: Log,
    through: int,
    config: Config | None,
    notes: Mapping[str, Any] | None,
    batch: Batch | None,
) -> Commit[Log]:
    """See :meth:`Engine.fork`."""
    check_name(name)
    engine.check_own(source)
    creation = _Creation(engine, notes, batch)
    with engine.lock:
        book = source.book
        book.check_there()
        if type(through) is not int or not 0 <= through <= book.shown:
            raise BadRequest(f"log {book.name!r} can be forked at the seqs 0 to {book.shown}, not at {through!r}")
        if 0 < book.volatile_from <= through:
            last = book.volatile_from - 1
            raise BadRequest(
                f"log {book.name!r} has the records after seq {last} in memory only; fork it at {last} or earlier"
            )
        point = ForkPoint(book.epoch, through, time_at(book, through))
        return creation.make(name, config or book.config, ForkBase(point, book))


class _Creation:
    """A log to create. ``notes`` and ``batch`` are checked on construction, everything else with the engine's lock
    held."""

    def __init__(self, engine: Engine, notes: Mapping[str, Any] | None, batch: Batch | None) -> None:
        self._engine = engine
        self._batch = batch
        self._size = 0 if batch is None else batch.check(engine.options.max_record_bytes)
        self._extras: Extras | None = None
        if notes:
            self._extras = Extras(notes=check_changes(notes))
            check_fits(None, self._extras.notes or {})

    def make(self, name: str, config: Config, base: ForkBase | None = None) -> Commit[Log]:
        engine, batch = self._engine, self._batch
        engine.check_writable()
        if engine.find(name) is not None:
            raise LogExists(name)
        engine.check_config(config)
        now = engine.now()
        book = Logbook(name, engine.next_epoch, config, now)
        if base is not None:
            book.begin_behind(base)
        if batch is not None and config.discard == "reject":
            check_room(book, len(batch), self._size)
        engine.quota.check_create(name)
        if batch is not None:
            engine.quota.check_append(name, self._size)
        engine.backlog.check(book, 0 if batch is None else len(batch), self._size)
        block = None if batch is None else Block.of_batch(book.assigned + 1, book.time_of(now), batch)
        self._journal(book, block, now)
        engine.add(book)
        log = Log(engine, book)
        if block is None:
            if self._extras is not None:
                book.note(self._extras, now)
            commit = engine.later((book,), log, None)
        else:
            commit = self._append(log, block, now)
        engine.tell_created(log)
        return commit

    def _journal(self, book: Logbook, block: Block | None, now: int) -> None:
        engine, ephemeral = self._engine, book.config.durability == "ephemeral"
        reserved = engine.reservations.after(book, book.config.durability)
        if block is not None:
            reserved = max(reserved, engine.reservations.wanted(book, block.last, len(block))[1])
        frames: list[Encoded] = [config_frame(book, book.config, now, reserved)]
        book.reserved = reserved
        if self._extras is not None and (block is None or ephemeral):
            frames.append(note_frame(book, self._extras, now))
        if block is not None and not ephemeral:
            frames.append(encode_append(book.epoch, block, now, reserved, self._extras))
        engine.journal.write_all(frames)
        engine.reservations.written(book, reserved)

    def _append(self, log: Log, block: Block, now: int) -> Commit[Log]:
        """Append the first records. Like the creation, they wait for the flush, whatever the log's durability."""
        engine, book = self._engine, log.book
        if book.config.durability == "ephemeral":
            begin_volatile(book)
        else:
            engine.note_place(book, block.first)
        book.assign(block, block.timestamp(0), self._extras, now)
        return publish_later(engine, book, block, self._size, log)
