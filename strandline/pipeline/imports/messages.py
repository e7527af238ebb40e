"""Turns Kafka messages into records."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from strandline.engine.errors import NoDataDirectory, UnknownLog
from strandline.engine.ownership import JSON
from strandline.engine.record import MAX_RECORD_BYTES
from strandline.history.source import open_history
from strandline.pipeline.imports.files import BadShape, RowShape
from strandline.pipeline.imports.records import BadRow, Making, NewRecord, milliseconds_of
from strandline.pipeline.imports.run import BadPlace
from strandline.pipeline.imports.staging import MAX_FAULTS
from strandline.pipeline.kafka_messages import content_of, key_of, readable
from strandline.pipeline.source.options import LogLocation

ValueFormat = Literal["json", "text", "base64", "bytes", "avro", "protobuf"]
VALUE_FORMATS: tuple[ValueFormat, ...] = get_args(ValueFormat)
#: The formats that Spark decodes.
DECODED = ("avro", "protobuf")
#: The columns of a message. For the formats that Spark decodes, ``decoded`` is the object ``{"value": …}`` as JSON, or
#: null if the value is not valid.
COLUMNS = ("topic", "partition", "offset", "ts", "key", "headers", "value", "decoded")

_encode = msgspec.json.Encoder().encode


class _Decoded(msgspec.Struct):
    value: msgspec.Raw = msgspec.Raw(b"null")


_decode = msgspec.json.Decoder(_Decoded).decode


class MessageShape(msgspec.Struct, frozen=True, kw_only=True):
    """The mapping of messages to records. ``log`` may contain ``{topic}`` and ``{partition}``. With ``dead_letters``,
    invalid messages go to this log."""

    log: str
    value: ValueFormat = "json"
    has_times: bool = False
    dead_letters: str = ""

    def check(self) -> None:
        """Raises BadShape."""
        if self.dead_letters and self.dead_letters == self.log:
            raise BadShape("--dead-letters and --log cannot be the same log")

    def log_of(self, topic: str, partition: int) -> str:
        """The log for the messages of a partition."""
        return self.log.replace("{topic}", topic).replace("{partition}", str(partition))


def fitting(shape: MessageShape, place: LogLocation, topics: Sequence[str], *, is_chosen: bool) -> MessageShape:
    """The shape for the logs that exist. Unless the format is chosen, logs that are not JSON take bytes as they are.
    Raises BadShape if a log does not take values of the format."""
    existing = _existing(shape, place, topics)
    for name, is_json in existing.items():
        if is_json and shape.value == "bytes":
            raise BadShape(f"log {name!r} takes JSON: import bytes with --value-format base64, or into another log")
        if not is_json and is_chosen and shape.value != "bytes":
            raise BadShape(f"log {name!r} does not take JSON: leave out --value-format {shape.value}")
        if not is_json:
            shape = msgspec.structs.replace(shape, value="bytes")
    if shape.value == "bytes" and not existing:
        raise BadShape(
            "--value-format bytes needs a log whose content type is not JSON: create it as a stream, with "
            "PUT /v1/stream/LOG and content-type: application/octet-stream"
        )
    return shape


def _existing(shape: MessageShape, place: LogLocation, topics: Sequence[str]) -> dict[str, bool]:
    """The existing logs that messages go to, and whether they take JSON."""
    names = "|".join(map(re.escape, topics))
    pattern = re.escape(shape.log).replace(r"\{topic\}", f"(?:{names})").replace(r"\{partition\}", r"\d+")
    try:
        history = open_history(path=place.path, url=place.url, key=place.key, cold_url=place.cold)
    except NoDataDirectory:
        return {}  # the directory is created later
    try:
        logs = [history.log(shape.log)] if pattern == re.escape(shape.log) else history.logs()
    except UnknownLog:
        return {}
    finally:
        history.close()
    return {info.name: info.media_type == JSON for info in logs if re.fullmatch(pattern, info.name)}


class Message(NamedTuple):
    topic: str
    partition: int
    offset: int
    ts: int
    key: bytes | None
    headers: list[dict[str, Any]] | None
    value: bytes | None
    decoded: str | None

    @property
    def header_pairs(self) -> list[tuple[str, bytes | None]]:
        return [(header["key"], header["value"]) for header in self.headers or ()]


class ImportedPart(msgspec.Struct, array_like=True):
    """What a task did with a range of a partition. ``records`` counts valid messages. ``name`` is the file with the
    staged records. ``failure`` says why the task stopped."""

    topic: str
    partition: int
    records: int = 0
    bytes: int = 0
    bad: int = 0
    places: list[BadPlace] = []
    name: str = ""
    failure: str = ""


def messages_in(batches: Iterable[Any]) -> Iterator[Message]:
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in COLUMNS]
        yield from map(Message._make, zip(*columns, strict=True))


class MessageRecords:
    """Turns the messages of one partition into records, with their offsets."""

    def __init__(self, shape: MessageShape, part: ImportedPart) -> None:
        self._shape = shape
        self._part = part
        log = shape.log_of(part.topic, part.partition)
        is_json = shape.value != "bytes"
        self._making = Making(RowShape(format="jsonl", log=log, not_json=[] if is_json else [log]))
        self._log = log
        self._nothing = b"null" if is_json else b""

    def of(self, messages: Iterable[Message]) -> Iterator[tuple[int, NewRecord]]:
        """The records. Invalid messages are counted, and become dead letters if there is a log for them."""
        part = self._part
        for message in messages:
            part.bytes += len(message.value or b"")
            try:
                record = self._record(message)
            except BadRow as error:
                part.bad += 1
                if len(part.places) < MAX_FAULTS:
                    part.places.append(BadPlace(f"{part.topic}/{part.partition}", message.offset, str(error)))
                if self._shape.dead_letters:
                    yield message.offset, self._dead_letter(message, str(error))
            else:
                part.records += 1
                yield message.offset, record

    def _record(self, message: Message) -> NewRecord:
        content = content_of(message.header_pairs)
        time = None
        if self._shape.has_times:
            time = milliseconds_of(message.ts if content.time is None else content.time)
        payload = self._nothing if message.value is None else self._payload(message.value, message.decoded)
        return self._making.checked(self._log, time, key_of(message.key), content.node, content.meta, payload)

    def _payload(self, value: bytes, decoded: str | None) -> bytes:
        format = self._shape.value
        if format in DECODED:
            if decoded is None:
                raise BadRow(f"the value does not match the {format.capitalize()} schema")
            return bytes(_decode(decoded).value)
        if format == "text":
            try:
                return _encode(value.decode())
            except UnicodeDecodeError as error:
                raise BadRow(f"the value is not valid UTF-8: {error}") from None
        return _encode(b64encode(value).decode()) if format == "base64" else value

    def _dead_letter(self, message: Message, why: str) -> NewRecord:
        """The message as it was, except for a value that is too large for a record."""
        letter: dict[str, Any] = {
            "topic": message.topic, "partition": message.partition, "offset": message.offset, "ts": message.ts,
            "reason": why, "key": readable(message.key), "value": readable(message.value),
            "headers": [[name, readable(value)] for name, value in message.header_pairs],
        }  # fmt: skip
        encoded = _encode(letter)
        if len(encoded) > MAX_RECORD_BYTES:
            sizes = dict.fromkeys(("key", "value", "headers"))
            encoded = _encode({**letter, **sizes, "value_bytes": len(message.value or b"")})
        time = message.ts if self._shape.has_times and message.ts >= 0 else 0 if self._shape.has_times else None
        return NewRecord(self._shape.dead_letters, time, None, None, None, encoded)
