"""Reading a log page by page and live: of JSON by the topics protocol, of anything else by Arrow.

The topics protocol shows every log of JSON with its seqs, keys and tombstones. What it does not show is read in bulk by
the history, which knows the same of any log; that something new has come is then told by the streams protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from msgspec import Raw, Struct

from strandline.cli.exits import CommandFailed, Exit
from strandline.cli.records import Loss, Shown, of_tombstone, of_topic
from strandline.client import Arrived, CaughtUp, Client, Conflict, Deleted, Lost, NotFound, Start

#: The server gives no more in one page.
PAGE_RECORDS = 1000


class Wanted(Struct, frozen=True):
    """Which records: behind a seq, with this key or a key that begins so, of this time or later (milliseconds)."""

    after: int = 0
    key: str | None = None
    prefix: str | None = None
    since: int | None = None

    @property
    def match(self) -> list[str] | None:
        if self.key is not None:
            return ["tag", "Eq", self.key]
        return None if self.prefix is None else ["tag", "Glob", f"{self.prefix}*"]


class Part(Struct, frozen=True):
    """A page. What was ``lost`` would have been among or before its records; ``after`` is where to go on."""

    records: list[Shown]
    after: int
    head: int
    earliest: int
    caught_up: bool
    lost: list[Loss] = []


class Reader(Protocol):
    def page(self, wanted: Wanted, limit: int) -> Part: ...

    def follow(self, wanted: Wanted | None) -> Iterator[Shown | Loss]:
        """What there is, then what comes; only that if nothing is ``wanted`` of what there is. Goes on over broken
        connections and restarts of the server, and ends only by being interrupted, or because the log goes."""

    def head(self) -> int:
        """The last seq."""

    def size(self) -> tuple[int, int | None]:
        """How many records there are, and how many bytes, where that is known."""


def open_reader(client: Client, url: str, key: str | None, log: str, patient: Client | None = None) -> Reader:
    """The client sees that the log is there; the ``patient`` one reads it, if there is one. Raises CommandFailed if
    there is no such log."""
    try:
        client.topic(log).state(touch=False)
    except NotFound:
        raise CommandFailed(f"there is no log {log!r}", Exit.NOT_FOUND) from None
    except Conflict as error:
        if error.code != "not_json":
            raise
        # The history needs Arrow, which takes longer to load than most commands take.
        from strandline.cli.bytes_reader import BytesReader

        return BytesReader(patient or client, url, key, log)
    return JsonReader(patient or client, log)


def pages(reader: Reader, wanted: Wanted, limit: int = PAGE_RECORDS) -> Iterator[Part]:
    """All pages, up to the end as it is when that is reached."""
    after = wanted.after
    while True:
        part = reader.page(Wanted(after, wanted.key, wanted.prefix, wanted.since), limit)
        yield part
        if part.caught_up or part.after <= after:
            return
        after = part.after


class JsonReader:
    def __init__(self, client: Client, log: str) -> None:
        self._client = client
        self._topic = client.topic(log, Raw)
        self._log = log

    def head(self) -> int:
        return self._topic.state(touch=False).head_seq

    def size(self) -> tuple[int, int | None]:
        state = self._topic.state(touch=False)
        return state.count, state.bytes

    def page(self, wanted: Wanted, limit: int) -> Part:
        found = self._topic.diff(
            wanted.after, limit=min(limit, PAGE_RECORDS), match=wanted.match, since_ts=wanted.since
        )
        lost = [] if found.tombstone is None else [of_tombstone(found.tombstone)]
        records = [of_topic(record) for record in found.records]
        return Part(records, found.next_from_seq, found.head_seq, found.earliest_seq, found.caught_up, lost)

    def follow(self, wanted: Wanted | None) -> Iterator[Shown | Loss]:
        start = Start(None) if wanted is None else Start(wanted.after, wanted.match, wanted.since)
        with self._client.watch({self._log: start}, Raw) as watch:
            for event in watch:
                match event:
                    case Arrived(records=records):
                        yield from map(of_topic, records)
                    case Lost(tombstone=tombstone):
                        yield of_tombstone(tombstone)
                    case Deleted():
                        raise CommandFailed(f"the log {self._log!r} was deleted", Exit.NOT_FOUND)
                    case CaughtUp():
                        pass
