"""``strandline log append``: from arguments or from standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer
from msgspec import Raw

from strandline.cli.connection import DEFAULT_URL, AsJson, Key, Url, complete_log, connect
from strandline.cli.exit_codes import CommandFailed, Exit
from strandline.cli.output import counted, print_json, print_line
from strandline.client import Client, Conflict, Draft, NotFound

#: Lines of one write where it matters which belong together; else what is there is written at once.
BATCH_LINES = 500
READ_BYTES = 1 << 18
JSON_TYPE = "application/json"
#: These logs of JSON are written by the streams protocol alone: they have a schema or a profile.
STREAM_ONLY = "not_writable"


class AppendOutcome(msgspec.Struct):
    """What became of it. Seqs are not known of what went by the streams protocol."""

    log: str
    appended: int = 0
    repeated: int = 0
    first: int | None = None
    last: int | None = None
    created: bool = False


class Line(msgspec.Struct, forbid_unknown_fields=False):
    """A line with ``--records``: as ``log tail --json`` prints records, of which seq and ts are left out."""

    data: Raw
    key: str | None = None
    node: str | None = None
    meta: Any = None


def append_command(
    log: Annotated[str, typer.Argument(metavar="LOG", help="The log.", autocompletion=complete_log)],
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="[DATA]...", help="JSON, a record each. Without any, the lines of standard input."),
    ] = None,
    record_key: Annotated[
        str | None, typer.Option("--record-key", "-k", metavar="TEXT", help="The key of the records.")
    ] = None,
    node: Annotated[str | None, typer.Option("--node", metavar="TEXT", help="Who writes them.")] = None,
    meta: Annotated[str | None, typer.Option("--meta", metavar="JSON", help="What stands beside the data.")] = None,
    text: Annotated[bool, typer.Option("--text", help="What is given is text, and becomes JSON strings.")] = False,
    records: Annotated[
        bool, typer.Option("--records", help="Lines are objects with data, key, node, meta: as log tail --json has it.")
    ] = False,
    idempotency_key: Annotated[
        str | None,
        typer.Option("--idempotency-key", metavar="TEXT", help="Whoever says the same again appends nothing."),
    ] = None,
    no_create: Annotated[bool, typer.Option("--no-create", help="Do not make the log if it is not there.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Append records to a log: all arguments in one step, or lines of standard input as they come.

    If a line of standard input is wrong, neither it nor what was read together with it is appended; what was before is
    told.
    """
    if text and records:
        raise typer.BadParameter("give either --text or --records")
    shape = LineShape(record_key, node, _json(meta, "--meta"), text, records)
    if data is None and sys.stdin.isatty():
        raise typer.BadParameter("there is nothing to append: give it as arguments or on standard input")
    with connect(url, key) as client:
        writer = Writer(client, log, shape, idempotency_key, create=not no_create)
        try:
            if data is not None:
                writer.write([line.encode() for line in data], 1)
            else:
                for number, lines in _batches(idempotency_key is not None, text or not writer.takes_json):
                    writer.write(lines, number)
        except BadLine as error:
            before = (
                f"; {counted(writer.outcome.appended, 'record')} before it were appended"
                if writer.outcome.appended
                else ""
            )
            raise CommandFailed(f"{error}{before}", Exit.USAGE) from None
    if as_json:
        print_json(writer.outcome)
    else:
        print_line(_told(writer.outcome))


def _told(outcome: AppendOutcome) -> str:
    made = f" (new log {outcome.log})" if outcome.created else ""
    if outcome.repeated and not outcome.appended:
        return f"{counted(outcome.repeated, 'record')} had been appended before{made}"
    again = f", {outcome.repeated:,} had been before" if outcome.repeated else ""
    seqs = "" if outcome.first is None else f", seqs {outcome.first} to {outcome.last}"
    return f"{counted(outcome.appended, 'record')} appended{again}{seqs}{made}"


class BadLine(Exception):
    """One line, or argument, that cannot be appended."""


class LineShape(msgspec.Struct, frozen=True):
    """What is said of all records, and how lines are understood."""

    key: str | None
    node: str | None
    meta: Any
    text: bool
    records: bool

    def draft(self, line: bytes, number: int) -> Draft[Any]:
        """Raises BadLine."""
        try:
            if self.records:
                found = msgspec.json.decode(line, type=Line)
                return Draft(found.data, found.key or self.key, found.node or self.node, found.meta or self.meta)
            if self.text:
                return Draft(line.decode(), self.key, self.node, self.meta)
            return Draft(_checked(line), self.key, self.node, self.meta)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            shown = line[:60].decode(errors="replace")
            hint = "" if self.records else "; with --text it is taken as a string"
            raise BadLine(f"number {number}, {shown!r}, is not what it should be: {error}{hint}") from None


def _checked(line: bytes) -> Raw:
    """JSON, as it is written."""
    msgspec.json.decode(line)
    return Raw(line)


class Writer:
    """Appends to one log, by the protocol that it takes."""

    def __init__(
        self, client: Client, log: str, shape: LineShape, idempotency_key: str | None, *, create: bool
    ) -> None:
        self._client = client
        self._log = log
        self._shape = shape
        self._key = idempotency_key
        self._create = create
        self._batches = 0
        self.outcome = AppendOutcome(log)
        self._content_type = self._look()
        self._by_stream = not self.takes_json

    @property
    def takes_json(self) -> bool:
        return self._content_type == JSON_TYPE

    def _look(self) -> str:
        try:
            return self._client.stream(self._log).head().content_type.partition(";")[0].strip().lower()
        except NotFound:
            if not self._create:
                raise CommandFailed(f"there is no log {self._log!r}", Exit.NOT_FOUND) from None
            return JSON_TYPE

    def write(self, lines: list[bytes], number: int) -> None:
        """Lines of which the first has this number: all of them or none. Raises BadLine."""
        if not self.takes_json:
            self._append_bytes(lines)
            return
        drafts = [self._shape.draft(line.strip(b"\r\n"), number + at) for at, line in enumerate(lines)]
        self._batches += 1
        if not self._by_stream:
            try:
                self._write(drafts)
                return
            except Conflict as error:
                if error.code != STREAM_ONLY:
                    raise
                self._by_stream = True
        self._append(drafts)

    def _write(self, drafts: list[Draft[Any]]) -> None:
        key = self._key if self._key is None or self._batches == 1 else f"{self._key}:{self._batches}"
        done = self._client.topic(self._log).write_many(
            drafts, idempotency_key=key, create=None if self._create else False
        )
        outcome = self.outcome
        outcome.created |= done.created
        if done.deduped:
            outcome.repeated += done.count
            return
        outcome.appended += done.count
        outcome.first = done.first_seq if outcome.first is None else outcome.first
        outcome.last = done.last_seq

    def _append(self, drafts: list[Draft[Any]]) -> None:
        """By the streams protocol: in one step what has the same key."""
        if self._key is not None or any(draft.node is not None or draft.meta is not None for draft in drafts):
            raise CommandFailed(
                f"the log {self._log!r} has a schema or a profile, and takes neither node, meta nor idempotency key",
                Exit.USAGE,
            )
        stream = self._client.stream(self._log)
        start = 0
        for at in range(1, len(drafts) + 1):
            if at == len(drafts) or drafts[at].tag != drafts[start].tag:
                stream.append_many([draft.data for draft in drafts[start:at]], key=drafts[start].tag)
                self.outcome.appended += at - start
                start = at

    def _append_bytes(self, lines: list[bytes]) -> None:
        """To a log that is not JSON: a record per line, as it is."""
        shape = self._shape
        if shape.records or shape.node is not None or shape.meta is not None or self._key is not None:
            raise CommandFailed(
                f"the log {self._log!r} holds {self._content_type}: its records have a key and nothing else", Exit.USAGE
            )
        stream: Any = self._client.stream(self._log, content_type=self._content_type)
        for line in lines:
            stream.append(line, key=shape.key)
            self.outcome.appended += 1


def _batches(fixed: bool, blank: bool) -> Iterator[tuple[int, list[bytes]]]:
    """The lines of standard input as they come, and the number of the first; with ``fixed``, so many at a time as it
    would be any other time; those that are ``blank`` only if that means something."""
    number, waiting, rest = 1, list[bytes](), b""
    source: Any = sys.stdin.buffer
    while chunk := source.read1(READ_BYTES):
        *whole, rest = (rest + chunk).split(b"\n")
        waiting += [line + b"\n" for line in whole if blank or line.strip()]
        while len(waiting) >= BATCH_LINES or (waiting and not fixed):
            yield number, waiting[:BATCH_LINES]
            number += len(waiting[:BATCH_LINES])
            waiting = waiting[BATCH_LINES:]
    if rest.strip() or (blank and rest):
        waiting.append(rest)
    for at in range(0, len(waiting), BATCH_LINES):
        yield number + at, waiting[at : at + BATCH_LINES]


def _json(text: str | None, option: str) -> Any:
    try:
        return None if text is None else msgspec.json.decode(text.encode())
    except msgspec.DecodeError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
