"""Reading the records of a log, page by page and live, and showing them.

JSON logs are read by the topics protocol, which has seqs, keys and tombstones. All other logs are read in bulk by the
history; the streams protocol tells when there are new records.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Raw, Struct

from strandline.cli.exit_codes import CommandFailed, Exit, naming
from strandline.cli.times import show_time
from strandline.client.errors import Conflict
from strandline.client.topic_types import Arrived, CaughtUp, Deleted, Lost, Record, Tombstone

if TYPE_CHECKING:
    from rich.text import Text

    from strandline.client import Client
    from strandline.history.log_info import LogInfo

#: The maximum of the server.
PAGE_RECORDS = 1000


class RecordFilter(Struct, frozen=True):
    """Which records: after a seq, with this key or key prefix, from this time (milliseconds) on."""

    after: int = 0
    key: str | None = None
    prefix: str | None = None
    since: int | None = None

    @property
    def match(self) -> list[str] | None:
        if self.key is not None:
            return ["tag", "Eq", self.key]
        return None if self.prefix is None else ["tag", "Glob", f"{self.prefix}*"]


class RecordPage(Struct, frozen=True):
    """A page of records. ``lost`` lists the gaps among or before them; ``after`` is where the next page starts."""

    records: list[ShownRecord]
    after: int
    head: int
    earliest: int
    caught_up: bool
    lost: list[RecordLoss] = []


class LogReader(Protocol):
    def page(self, wanted: RecordFilter, limit: int) -> RecordPage: ...

    def follow(self, wanted: RecordFilter | None) -> Iterator[ShownRecord | RecordLoss]:
        """The existing records that are ``wanted`` (none if it is None), then new ones. Continues after broken
        connections and restarts of the server; ends when it is interrupted or the log is deleted."""

    def head(self) -> int:
        """The last seq."""

    def size(self) -> tuple[int, int | None]:
        """The number of records, and their bytes; None if the bytes are unknown."""


def open_reader(client: Client, url: str, api_key: str | None, log: str, patient: Client | None = None) -> LogReader:
    """A reader for a log, which uses the ``patient`` client if there is one. Raises CommandFailed if the log does not
    exist; that is checked with the first client, which gives up earlier."""
    try:
        with naming("log", log):
            client.topic(log).state(touch=False)
    except Conflict as error:
        if error.code != "not_json":
            raise
        return BytesReader(patient or client, url, api_key, log)
    return JsonReader(patient or client, log)


def pages(reader: LogReader, wanted: RecordFilter, limit: int = PAGE_RECORDS) -> Iterator[RecordPage]:
    """All pages up to the end of the log."""
    after = wanted.after
    while True:
        part = reader.page(RecordFilter(after, wanted.key, wanted.prefix, wanted.since), limit)
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

    def page(self, wanted: RecordFilter, limit: int) -> RecordPage:
        found = self._topic.diff(
            wanted.after, limit=min(limit, PAGE_RECORDS), match=wanted.match, since_ts=wanted.since
        )
        lost = [] if found.tombstone is None else [of_tombstone(found.tombstone)]
        records = [of_topic(record) for record in found.records]
        return RecordPage(records, found.next_from_seq, found.head_seq, found.earliest_seq, found.caught_up, lost)

    def follow(self, wanted: RecordFilter | None) -> Iterator[ShownRecord | RecordLoss]:
        from strandline.client.watch import Start

        start = Start(None) if wanted is None else Start(wanted.after, wanted.match, wanted.since)
        with self._client.watch({self._log: start}, Raw) as watch:
            for event in watch:
                match event:
                    case Arrived(records=records):
                        yield from map(of_topic, records)
                    case Lost(tombstone=tombstone):
                        yield of_tombstone(tombstone)
                    case Deleted():
                        raise CommandFailed(f"log {self._log!r} was deleted", Exit.NOT_FOUND)
                    case CaughtUp():
                        pass


# --- logs that are not JSON -----------------------------------------------------------------------------------------

#: Records of one piece: a piece is read completely before its records are shown.
PIECE_RECORDS = 10_000


class BytesReader:
    def __init__(self, client: Client, url: str, api_key: str | None, log: str) -> None:
        # Importing Arrow takes longer than most commands.
        from strandline.history.remote import ServerHistory

        self._client = client
        self._history = ServerHistory(url, api_key)
        self._log = log

    def head(self) -> int:
        return self._history.log(self._log).head

    def size(self) -> tuple[int, int | None]:
        return self._history.log(self._log).records, None

    def page(self, wanted: RecordFilter, limit: int) -> RecordPage:
        info = self._history.log(self._log)
        records, after = self._read(info, wanted, limit)
        return RecordPage(
            records, after, info.head, info.earliest, after >= info.head, _losses(info, wanted.after, after)
        )

    def _read(self, info: LogInfo, wanted: RecordFilter, limit: int) -> tuple[list[ShownRecord], int]:
        """The first records, and the seq up to which the log was read."""
        from strandline.history.pieces import Where

        records: list[ShownRecord] = []
        where = Where(wanted.key, wanted.since)
        for piece in self._history.pieces(info, wanted.after, info.head, PIECE_RECORDS, where):
            for batch in piece.read():
                records += [one for one in of_batch(batch, False) if _begins(one.key, wanted.prefix)]
                if len(records) >= limit:
                    return records[:limit], records[limit - 1].seq
        return records, info.head

    def follow(self, wanted: RecordFilter | None) -> Iterator[ShownRecord | RecordLoss]:
        content_type = self._client.stream(self._log).head().content_type
        stream = self._client.stream(self._log, content_type=content_type)
        offset = stream.head().next_offset
        after = self.head() if wanted is None else wanted.after
        wanted = wanted or RecordFilter()
        with stream.tail(offset) as tail:
            while True:
                for part in pages(self, RecordFilter(after, wanted.key, wanted.prefix, wanted.since)):
                    yield from part.lost
                    yield from part.records
                    after = part.after
                if next(tail, None) is None:
                    return


def _losses(info: LogInfo, after: int, through: int) -> list[RecordLoss]:
    """The seqs after ``after`` up to ``through`` that retention or damage removed."""
    found = [RecordLoss(after + 1, info.floor - 1, "cap or ttl")] if after + 1 < info.floor else []
    return found + [RecordLoss(first, last, "lost") for first, last in info.gaps if first > after and first <= through]


def _begins(key: str | None, prefix: str | None) -> bool:
    return prefix is None or (key is not None and key.startswith(prefix))


# --- records as they are shown --------------------------------------------------------------------------------------

NULL = Raw(b"null")


class ShownRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record. ``data`` is JSON as it was written. A record of another log has ``text``, or ``base64`` if it is not
    UTF-8."""

    seq: int
    ts: int
    key: str | None = None
    node: str | None = None
    meta: Raw | None = None
    data: Raw | None = None
    text: str | None = None
    base64: str | None = None

    @property
    def payload(self) -> str:
        """The data as text."""
        if self.data is not None:
            return bytes(self.data).decode()
        return self.text if self.text is not None else f"base64:{self.base64}"


class RecordLoss(msgspec.Struct, frozen=True):
    """Records that were lost: retention or damage removed them, not a deletion."""

    first: int
    last: int
    reason: str


class LossLine(msgspec.Struct, frozen=True):
    """A loss as a line of JSON."""

    lost: RecordLoss


def of_topic(record: Record[Any]) -> ShownRecord:
    """A record whose data was read as :class:`Raw`."""
    meta = None if record.meta is None else Raw(msgspec.json.encode(record.meta))
    return ShownRecord(record.seq, record.ts, record.tag, record.node, meta, Raw(record.data))


def of_batch(batch: Any, is_json: bool) -> list[ShownRecord]:
    """The rows of an Arrow batch of the history."""
    columns = [batch.column(name).to_pylist() for name in ("seq", "ts", "key", "node", "meta", "data")]
    return [_of_row(row, is_json) for row in zip(*columns, strict=True)]


def _of_row(row: tuple[Any, ...], is_json: bool) -> ShownRecord:
    seq, ts, key, node, meta, data = row
    shown = ShownRecord(seq, round(ts.timestamp() * 1000), key, node, None if meta is None else Raw(meta))
    if is_json:
        return msgspec.structs.replace(shown, data=Raw(data))
    try:
        return msgspec.structs.replace(shown, text=data.decode())
    except UnicodeDecodeError:
        return msgspec.structs.replace(shown, base64=base64.b64encode(data).decode())


def of_tombstone(tombstone: Tombstone) -> RecordLoss:
    return RecordLoss(tombstone.gap_from, tombstone.gap_to, tombstone.reason)


def line_of(record: ShownRecord) -> Text:
    """One line: seq, time, key, payload, node and meta."""
    from rich.text import Text

    line = Text.assemble((f"{record.seq:>6}", "cyan"), "  ", (show_time(record.ts), "dim"), "  ")
    line.append(record.key or "-", "green" if record.key else "dim")
    line.append("  " + record.payload.rstrip("\n").replace("\n", "\\n"))
    if record.node is not None:
        line.append(f"  node={record.node}", "dim")
    if record.meta is not None:
        line.append(f"  meta={bytes(record.meta).decode()}", "dim")
    return line


#: Why records were lost, by the protocol's reason.
_LOSS_REASONS = {
    "cap": "removed by retention: max records or max bytes",
    "ttl": "removed by retention: max age",
    "mixed": "removed by retention",
    "cap or ttl": "removed by retention",
    "source_trim": "removed from the source log before they were copied",
    "lost": "lost to damage or a power failure",
    "recreated": "deleted with an earlier log of this name",
    "from_seq_too_old": "removed before they were read",
}


def line_of_loss(loss: RecordLoss) -> Text:
    from rich.text import Text

    reason = _LOSS_REASONS.get(loss.reason, loss.reason)
    return Text(f"------  {seq_range(loss.first, loss.last)} {reason}", "red")


def seq_range(first: int, last: int | None) -> str:
    """``seq 5``, ``seq 1 to 7``."""
    return f"seq {first}" if last in (first, None) else f"seq {first} to {last}"
