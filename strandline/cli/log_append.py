"""``strandline log append``: records from arguments or from standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer
from msgspec import Raw

from strandline.cli.connection import connect, queue_state
from strandline.cli.exit_codes import CommandFailed, Exit, not_found
from strandline.cli.options import ApiKey, AsJson, LogName, Url
from strandline.cli.output import counted, print_json, print_line
from strandline.cli.records import seq_range
from strandline.cli.server_choice import DEFAULT_URL
from strandline.cli.times import now_ms, parse_duration
from strandline.client.errors import Conflict, NotFound
from strandline.client.topic_types import Draft

if TYPE_CHECKING:
    from strandline.client import Client

#: Lines of one write with an idempotency key: a repeated command makes the same writes. Without a key, lines are
#: written as soon as they are read.
BATCH_LINES = 500
READ_BYTES = 1 << 18
JSON_TYPE = "application/json"
#: How much of an invalid line a message quotes.
SHOWN_BYTES = 60
#: The error code of a JSON log that only the streams protocol appends to: it has a schema or a profile.
STREAM_ONLY = "not_writable"


class AppendOutcome(msgspec.Struct):
    """The result. ``first`` and ``last`` are None for records that were appended with the streams protocol."""

    log: str
    appended: int = 0
    repeated: int = 0
    first: int | None = None
    last: int | None = None
    created: bool = False


class RecordLine(msgspec.Struct):
    """A line of ``--records``: a record as ``log tail --json`` prints it. Its ``seq`` and ``ts`` are ignored."""

    data: Raw
    key: str | None = None
    node: str | None = None
    meta: Any = None


def append_command(
    log: LogName,
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="[DATA]...", help="One JSON document per record. Default: the lines of standard input."),
    ] = None,
    record_key: Annotated[
        str | None, typer.Option("--record-key", "-k", metavar="KEY", help="Key of the records.")
    ] = None,
    node: Annotated[
        str | None, typer.Option("--node", metavar="NAME", help="Name of the node that writes the records.")
    ] = None,
    meta: Annotated[
        str | None, typer.Option("--meta", metavar="JSON", help="Metadata of the records: a JSON document.")
    ] = None,
    text: Annotated[
        bool, typer.Option("--text", help="Append each argument or line as a JSON string, without parsing it.")
    ] = False,
    records: Annotated[
        bool,
        typer.Option(
            "--records",
            help="Read each line as an object with data, key, node and meta, as `log tail --json` prints it.",
        ),
    ] = False,
    priority: Annotated[
        int,
        typer.Option(
            "--priority",
            metavar="N",
            min=-1000,
            max=1000,
            help="Queues only: priority of the jobs; workers get higher numbers first.",
        ),
    ] = 0,
    delay: Annotated[
        str | None,
        typer.Option(
            "--delay",
            metavar="DURATION",
            help="Queues only: time until workers can get the jobs, such as 10m. Default: 0s.",
        ),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            "--idempotency-key",
            metavar="TEXT",
            help="Repeating the command with the same key and the same records has no effect.",
        ),
    ] = None,
    no_create: Annotated[
        bool, typer.Option("--no-create", help="Fail if the log does not exist, instead of creating it.")
    ] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Append records to a log, from arguments or from standard input.

    Arguments are appended atomically. Lines of standard input are appended in batches as they arrive. If a line is
    invalid, the command stops, appends nothing of that batch, and says how many records were appended before.

    Example:
      strandline log append orders '{"item":"book"}' '{"item":"pen"}' --record-key customer-7
      strandline log append emails --delay 10m < jobs.jsonl
    """
    if text and records:
        raise typer.BadParameter("--text cannot be combined with --records")
    not_before = 0 if delay is None else now_ms() + parse_duration(delay, "--delay")
    shape = RecordShape(record_key, node, parse_json(meta, "--meta"), text, records, not_before, priority)
    with connect(url, api_key) as client:
        if shape.is_scheduled:
            queue_state(client, log)
        outcome = append(client, log, data, shape, idempotency_key, create=not no_create)
    if as_json:
        print_json(outcome)
    else:
        print_line(_describe(outcome))


def append(
    client: Client, log: str, data: list[str] | None, shape: RecordShape, idempotency_key: str | None, *, create: bool
) -> AppendOutcome:
    """Append the arguments, or the lines of standard input if ``data`` is None. Raises CommandFailed."""
    if data is None and sys.stdin.isatty():
        raise typer.BadParameter("no records: give them as arguments, or pipe them to standard input")
    writer = Writer(client, log, shape, idempotency_key, create=create)
    try:
        if data is not None:
            writer.write([Line(f"argument {at}", each.encode()) for at, each in enumerate(data, 1)])
        else:
            for lines in _batches(idempotency_key is not None, shape.text or not writer.takes_json):
                writer.write(lines)
    except InvalidLine as error:
        count = writer.outcome.appended
        before = f"; {counted(count, 'record')} of earlier lines appended" if count else ""
        raise CommandFailed(f"{error}{before}", Exit.USAGE) from None
    return writer.outcome


def _describe(outcome: AppendOutcome) -> str:
    created = f"created log {outcome.log}; " if outcome.created else ""
    if outcome.repeated and not outcome.appended:
        count = counted(outcome.repeated, "record")
        return f"{created}appended nothing: {count} with this idempotency key were appended before"
    repeated = f"; skipped {outcome.repeated:,} that were appended before" if outcome.repeated else ""
    seqs = "" if outcome.first is None else f", {seq_range(outcome.first, outcome.last)}"
    return f"{created}appended {counted(outcome.appended, 'record')}{seqs}{repeated}"


class InvalidLine(Exception):
    """A line or an argument that cannot be appended."""


class Line(NamedTuple):
    """A line of standard input, or an argument. ``place`` is its name in messages."""

    place: str
    text: bytes


class RecordShape(msgspec.Struct, frozen=True):
    """The options that apply to all records, and how a line is parsed."""

    key: str | None
    node: str | None
    meta: Any
    text: bool
    records: bool
    not_before_ts: int = 0
    priority: int = 0

    @property
    def is_scheduled(self) -> bool:
        return bool(self.not_before_ts or self.priority)

    def draft(self, line: Line) -> Draft[Any]:
        """Raises InvalidLine."""
        text = line.text.strip(b"\r\n")
        try:
            if self.records:
                found = msgspec.json.decode(text, type=RecordLine)
            else:
                found = RecordLine(Raw(msgspec.json.encode(text.decode())) if self.text else _checked(text))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            if self.records:
                wanted, advice = "a record", "expected an object with data and optionally key, node and meta"
            elif self.text:
                wanted, advice = "UTF-8 text", "convert the input to UTF-8"
            else:
                wanted, advice = "valid JSON", "add --text to append it as a string"
            shown = text[:SHOWN_BYTES].decode(errors="replace")
            raise InvalidLine(f"{line.place} is not {wanted}: {shown!r} ({error}); {advice}") from None
        return Draft(
            found.data,
            found.key or self.key,
            found.node or self.node,
            found.meta or self.meta,
            self.not_before_ts,
            self.priority,
        )


def _checked(line: bytes) -> Raw:
    """JSON, as it was written."""
    msgspec.json.decode(line)
    return Raw(line)


class Writer:
    """Appends to one log, with the protocol that the log accepts."""

    def __init__(
        self, client: Client, log: str, shape: RecordShape, idempotency_key: str | None, *, create: bool
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
                raise not_found("log", self._log) from None
            return JSON_TYPE

    def write(self, lines: list[Line]) -> None:
        """Append all lines or none. Raises InvalidLine."""
        if not self.takes_json:
            self._append_bytes(lines)
            return
        drafts = [self._shape.draft(line) for line in lines]
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
        """With the streams protocol: one append for each run of records with the same key."""
        if self._key is not None or any(draft.node is not None or draft.meta is not None for draft in drafts):
            raise CommandFailed(
                f"log {self._log!r} has a schema or a profile, so --node, --meta and --idempotency-key do not apply",
                Exit.USAGE,
            )
        stream = self._client.stream(self._log)
        start = 0
        for at in range(1, len(drafts) + 1):
            if at == len(drafts) or drafts[at].tag != drafts[start].tag:
                stream.append_many([draft.data for draft in drafts[start:at]], key=drafts[start].tag)
                self.outcome.appended += at - start
                start = at

    def _append_bytes(self, lines: list[Line]) -> None:
        """To a log that is not JSON: each line is a record, unchanged."""
        shape = self._shape
        if shape.records or shape.node is not None or shape.meta is not None or self._key is not None:
            raise CommandFailed(
                f"log {self._log!r} holds {self._content_type}: its records can have --record-key, but not --records, "
                "--node, --meta or --idempotency-key",
                Exit.USAGE,
            )
        stream: Any = self._client.stream(self._log, content_type=self._content_type)
        for line in lines:
            stream.append(line.text, key=shape.key)
            self.outcome.appended += 1


def _batches(fixed: bool, blank: bool) -> Iterator[list[Line]]:
    """The lines of standard input. ``fixed``: in batches of BATCH_LINES, whenever they arrive. ``blank``: with empty
    lines; they count in the numbers of lines in any case."""
    number, waiting, rest = 0, list[Line](), b""
    source: Any = sys.stdin.buffer
    while chunk := source.read1(READ_BYTES):
        *whole, rest = (rest + chunk).split(b"\n")
        for text in whole:
            number += 1
            if blank or text.strip():
                waiting.append(Line(f"line {number}", text + b"\n"))
        while len(waiting) >= BATCH_LINES or (waiting and not fixed):
            yield waiting[:BATCH_LINES]
            waiting = waiting[BATCH_LINES:]
    if rest.strip() or (blank and rest):
        waiting.append(Line(f"line {number + 1}", rest))
    if waiting:
        yield waiting


def parse_json(text: str | None, option: str) -> Any:
    try:
        return None if text is None else msgspec.json.decode(text.encode())
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"{text!r} is not valid JSON: {error}", param_hint=option) from None
