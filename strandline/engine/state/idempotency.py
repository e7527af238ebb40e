"""Recognise repeated appends: idempotency keys and producers.

This state is in the append's own frame, so it survives a restart and never disagrees with the records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strandline.engine.clock import MAX_AHEAD_MS
from strandline.engine.errors import BadRequest, ProducerFenced, ProducerGap
from strandline.engine.journal.bodies import Extras
from strandline.engine.record import Appended, Producer, ProducerState, Remembered
from strandline.engine.state.notes import check_changes

if TYPE_CHECKING:
    from strandline.engine.state.logbook import Logbook

#: The log remembers idempotency keys and producer ids, so their length is limited.
MAX_IDENTITY = 1024


def find_duplicate(book: Logbook, key: str | None, producer: Producer | None, now: int) -> Appended | None:
    """Return the result of the first append with this idempotency key or producer seq. Raises for a fenced producer."""
    if key is not None and book.idempotency is not None:
        _forget_old_keys(book, now)
        found = book.idempotency.get(key)
        if found is not None:
            return found.again()
    if producer is not None:
        return _check_producer(book, producer)
    return None


def _forget_old_keys(book: Logbook, now: int) -> None:
    assert book.idempotency is not None
    oldest = now - book.config.idempotency_window_ms
    # Keys are in the order of their appends, and the engine's time never goes backwards, so only the first keys can be
    # too old. The time can go back by more than a day after a wrong clock; keys from then would never expire.
    expired = []
    for key, appended in book.idempotency.items():
        if oldest <= (appended.at or appended.ts) <= now + MAX_AHEAD_MS:
            break
        expired.append(key)
    for key in expired:
        del book.idempotency[key]


def _check_producer(book: Logbook, producer: Producer) -> Appended | None:
    known = book.producers.get(producer.id) if book.producers is not None else None
    if known is None or producer.epoch > known.epoch:
        if producer.seq != 0:
            raise ProducerGap(producer.id, 0, producer.seq)
        return None
    if producer.epoch < known.epoch:
        raise ProducerFenced(producer.id, producer.epoch, known.epoch)
    if producer.seq <= known.seq:
        return known.appended.again()
    if producer.seq > known.seq + 1:
        raise ProducerGap(producer.id, known.seq + 1, producer.seq)
    return None


def remember(book: Logbook, extras: Extras, appended: Appended, now: int) -> None:
    if extras.idempotency_key is not None:
        if book.idempotency is None:
            book.idempotency = {}
        _forget_old_keys(book, now)
        at = 0 if now == appended.ts else now
        book.idempotency[extras.idempotency_key] = Remembered(appended.first, appended.last, appended.ts, at=at)
    if extras.producer is not None:
        if book.producers is None:
            book.producers = {}
        producer = extras.producer
        book.producers[producer.id] = ProducerState(producer.epoch, producer.seq, appended)


def remember_keys(book: Logbook, extras: Sequence[Extras], appends: Sequence[Remembered], times: Sequence[int]) -> bool:
    """Call ``remember`` for many appends at once, in their order. Return whether this was possible.

    It is not possible if an append carries anything other than an idempotency key, or if keys expire before or within
    these appends: then the order in which keys are forgotten and added again matters.
    """
    keys = [each.idempotency_key for each in extras if each.producer is None and each.notes is None]
    if len(keys) < len(extras) or None in keys:
        return False
    known = {} if book.idempotency is None else book.idempotency
    oldest = max(times) - book.config.idempotency_window_ms
    first = next(iter(known.values()), None)
    if min(times) < oldest or (first is not None and (first.at or first.ts) < oldest):
        return False
    known.update(zip(keys, appends, strict=True))  # type: ignore[arg-type]  # there is no None among them
    book.idempotency = known
    return True


def check_extras(
    idempotency_key: str | None, producer: Producer | None, notes: Mapping[str, Any] | None = None
) -> Extras:
    if idempotency_key is not None:
        _check_identity("an idempotency key", idempotency_key)
    if producer is not None:
        _check_identity("a producer's id", producer.id)
        for what, number in (("epoch", producer.epoch), ("seq", producer.seq)):
            if type(number) is not int or not 0 <= number < 1 << 63:
                raise BadRequest(f"a producer's {what} must be a whole number from 0 to 2^63 - 1, not {number!r}")
    return Extras(idempotency_key, producer, None if notes is None else check_changes(notes))


def _check_identity(what: str, text: str) -> None:
    if type(text) is not str or not text or len(text) > MAX_IDENTITY or any("\ud800" <= c <= "\udfff" for c in text):
        raise BadRequest(f"{what} must be Unicode text of 1 to {MAX_IDENTITY} characters")
