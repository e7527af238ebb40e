"""Records as the command line shows them, whatever protocol they came by."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
from msgspec import Raw
from rich.text import Text

from strandline.cli.times import show_time
from strandline.client import Record, Tombstone

NULL = Raw(b"null")


class Shown(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record. ``data`` is JSON as it was written; of a log that is not JSON the record has ``text``, or ``base64``
    where it is no text either."""

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
        """For people."""
        if self.data is not None:
            return bytes(self.data).decode()
        return self.text if self.text is not None else f"base64:{self.base64}"


class Loss(msgspec.Struct, frozen=True):
    """Records that are gone although nobody deleted them."""

    first: int
    last: int
    reason: str


class LossLine(msgspec.Struct, frozen=True):
    """A loss among records, for programs."""

    lost: Loss


def of_topic(record: Record[Any]) -> Shown:
    """A record whose data and meta were read as they are written."""
    meta = None if record.meta is None else Raw(msgspec.json.encode(record.meta))
    return Shown(record.seq, record.ts, record.tag, record.node, meta, Raw(record.data))


def of_batch(batch: Any, is_json: bool) -> list[Shown]:
    """The rows of an Arrow batch of the history."""
    columns = [batch.column(name).to_pylist() for name in ("seq", "ts", "key", "node", "meta", "data")]
    return [_of_row(row, is_json) for row in zip(*columns, strict=True)]


def _of_row(row: tuple[Any, ...], is_json: bool) -> Shown:
    seq, ts, key, node, meta, data = row
    shown = Shown(seq, round(ts.timestamp() * 1000), key, node, None if meta is None else Raw(meta))
    if is_json:
        return msgspec.structs.replace(shown, data=Raw(data))
    try:
        return msgspec.structs.replace(shown, text=data.decode())
    except UnicodeDecodeError:
        return msgspec.structs.replace(shown, base64=base64.b64encode(data).decode())


def of_tombstone(tombstone: Tombstone) -> Loss:
    return Loss(tombstone.gap_from, tombstone.gap_to, tombstone.reason)


def line_of(record: Shown) -> Text:
    """One line: seq, time, key, payload, and behind it who wrote it and what stands beside it."""
    line = Text.assemble((f"{record.seq:>6}", "cyan"), "  ", (show_time(record.ts), "dim"), "  ")
    line.append(record.key or "-", "green" if record.key else "dim")
    line.append("  " + record.payload.rstrip("\n").replace("\n", "\\n"))
    if record.node is not None:
        line.append(f"  node={record.node}", "dim")
    if record.meta is not None:
        line.append(f"  meta={bytes(record.meta).decode()}", "dim")
    return line


def line_of_loss(loss: Loss) -> Text:
    return Text(f"------  the records from {loss.first} to {loss.last} are gone ({loss.reason})", "red")
