"""Reading a log page by page and live: of JSON by the topics protocol, of anything else by Arrow.

The topics protocol shows every log of JSON with its seqs, keys and tombstones. What it does not show is read in bulk by
the history, which knows the same of any log; that something new has come is then told by the streams protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from msgspec import Raw, Struct

from strandline.cli.exits import CommandFailed, Exit
from strandline.cli.records import Loss, Shown, of_batch, of_tombstone, of_topic
from strandline.client import Arrived, CaughtUp, Client, Conflict, Deleted, Lost, NotFound, Start
from strandline.history.log_info import LogInfo
from strandline.history.pieces import Where
from strandline.history.remote import ServerHistory

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
        pass

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


# --- Reading a log that is not JSON: in bulk, by the history; that something has come is told by the streams protocol

#: What is read before it is shown.
PIECE_RECORDS = 10_000


class BytesReader:
    def __init__(self, client: Client, url: str, key: str | None, log: str) -> None:
        self._client = client
        self._history = ServerHistory(url, key)
        self._log = log

    def head(self) -> int:
        return self._history.log(self._log).head

    def size(self) -> tuple[int, int | None]:
        return self._history.log(self._log).records, None

    def page(self, wanted: Wanted, limit: int) -> Part:
        info = self._history.log(self._log)
        records, after = self._read(info, wanted, limit)
        return Part(records, after, info.head, info.earliest, after >= info.head, _losses(info, wanted.after, after))

    def _read(self, info: LogInfo, wanted: Wanted, limit: int) -> tuple[list[Shown], int]:
        """The first records, and up to where that is."""
        records: list[Shown] = []
        where = Where(wanted.key, wanted.since)
        for piece in self._history.pieces(info, wanted.after, info.head, PIECE_RECORDS, where):
            for batch in piece.read():
                records += [one for one in of_batch(batch, False) if _begins(one.key, wanted.prefix)]
                if len(records) >= limit:
                    return records[:limit], records[limit - 1].seq
        return records, info.head

    def follow(self, wanted: Wanted | None) -> Iterator[Shown | Loss]:
        content_type = self._client.stream(self._log).head().content_type
        stream = self._client.stream(self._log, content_type=content_type)
        offset = stream.head().next_offset
        after = self.head() if wanted is None else wanted.after
        wanted = wanted or Wanted()
        with stream.tail(offset) as tail:
            while True:
                for part in pages(self, Wanted(after, wanted.key, wanted.prefix, wanted.since)):
                    yield from part.lost
                    yield from part.records
                    after = part.after
                if next(tail, None) is None:
                    return


def _losses(info: LogInfo, after: int, through: int) -> list[Loss]:
    """What readers would have got from behind ``after`` up to ``through``, had not a cap, time or damage taken it."""
    found = [Loss(after + 1, info.floor - 1, "cap or ttl")] if after + 1 < info.floor else []
    return found + [Loss(first, last, "lost") for first, last in info.gaps if first > after and first <= through]


def _begins(key: str | None, prefix: str | None) -> bool:
    return prefix is None or (key is not None and key.startswith(prefix))
