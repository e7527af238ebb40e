"""History by url: the logs of a server, read and appended to in bulk over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import httpx
import msgspec
import pyarrow as pa
from msgspec import Raw

from strandline.history.columns import RECORDS
from strandline.history.http import (
    MEDIA_TYPE,
    PATIENCE,
    SHORT,
    Busy,
    Patience,
    ProgressConflict,
    RefusedByServer,
    ServerFailure,
    Talker,
    place,
    talker,
)
from strandline.history.log_info import LogInfo
from strandline.history.pieces import BATCH_ROWS, EVERYTHING, Where

#: Logs of one page of the list.
PAGE_LOGS = 1000
Progress = dict[str, Any]
T = TypeVar("T")


class OutcomeUnknown(ServerFailure):
    """The connection ended before the answer came: the records may have been appended, or not."""


class ServerHistory:
    """The logs of a server, as they are when they are asked for. Pieces can be read as long as the server is there."""

    def __init__(
        self, url: str, key: str | None = None, *, compression: str | None = None, patience: Patience = PATIENCE
    ) -> None:
        """``compression``: zstd or lz4, for a slow line. Raises ServerUnreachable, KeyRefused, RefusedByServer."""
        self._url = url
        self._key = key
        self._compression = compression
        self._patience = patience
        self._talker = talker(url, key)
        #: Which data directory it is.
        self.directory = self._page("", "", 1, SHORT if patience.attempts > SHORT.attempts else patience).directory

    def close(self) -> None:
        """Nothing is held here."""

    def logs(self, prefix: str = "") -> list[LogInfo]:
        """All logs that the key may read, those that the server keeps for itself included, by name."""
        found: list[LogInfo] = []
        after: str | None = ""
        while after is not None:
            page = self._page(prefix, after, PAGE_LOGS, self._patience)
            found += [_info(log) for log in page.logs]
            after = page.next
        return found

    def log(self, name: str) -> LogInfo:
        """Raises UnknownLog."""
        return _info(self._one(name))

    def standing(self, log: LogInfo) -> list[tuple[int, int]]:
        """The seqs that readers see, as inclusive ranges; some in them may never have held anything. Raises LogReplaced
        when there is another log of this name."""
        return _decode(self._one(log.name, epoch=log.epoch), _OneLog).standing

    def pieces(
        self, log: LogInfo, after: int, through: int, rows: int, where: Where = EVERYTHING, *, own: bool = False
    ) -> list[ServerPiece]:
        """What there is to read from behind ``after`` up to ``through``, in pieces of about ``rows`` records. With
        ``own`` without what a fork shares with the log it was forked from."""
        first = max(after + 1, log.earliest, log.own_after + 1 if own else 1)
        last = min(through, log.head)
        parts = max(round((last - first + 1) / rows), 1)
        step = max(-(-(last - first + 1) // parts), 1)
        return [
            ServerPiece(
                self._url, self._key, log.name, log.epoch, low, min(low + step - 1, last),
                min(step, last - low + 1), where, self._compression, self._patience,
            )
            for low in range(first, last + 1, step)
        ]  # fmt: skip

    def _page(self, prefix: str, after: str, limit: int, patience: Patience) -> _Logs:
        params = {"prefix": prefix, "after": after, "limit": limit, "internal": "true"}
        return _decode(self._talker.ask("/arrow/logs", params, patience), _Logs)

    def _one(self, name: str, **params: Any) -> bytes:
        return self._talker.ask(place("logs", name), params, self._patience)


# --- pieces --------------------------------------------------------------------------------------------------------


class ServerPiece(msgspec.Struct, frozen=True, array_like=True, tag="server"):
    """Records of a log, to be had from a server."""

    url: str
    key: str | None
    log: str
    epoch: int
    first: int
    last: int
    rows: int
    where: Where = EVERYTHING
    compression: str | None = None
    patience: Patience = PATIENCE

    def __repr__(self) -> str:
        """Without the key, which is nobody's business where this is printed."""
        return f"<ServerPiece {self.log!r} {self.first}..{self.last} of {self.url}>"

    def read(self, batch_rows: int = BATCH_ROWS) -> Iterator[Any]:
        """The records as batches of ``RECORDS``, in order. A stream that breaks off is taken up again behind the last
        record that came. Raises LogReplaced when there is another log of this name, and UnknownLog."""
        server = talker(self.url, self.key)
        after, attempt = self.first - 1, 0
        while True:
            try:
                for batch in _batches(server, place("records", self.log), self._params(after, batch_rows)):
                    yield batch
                    after, attempt = batch.column("seq")[-1].as_py(), 0
                return
            except (httpx.TransportError, Busy) as error:
                attempt += 1
                server.wait(attempt, error, self.patience)

    def _params(self, after: int, batch_rows: int) -> dict[str, Any]:
        params = {
            "after": after,
            "through": self.last,
            "epoch": self.epoch,
            "batch_rows": batch_rows,
            "key": self.where.key,
            "since": self.where.since,
            "until": self.where.until,
            "compression": self.compression,
        }
        return {name: value for name, value in params.items() if value is not None}


def _batches(server: Talker, path: str, params: dict[str, Any]) -> Iterator[Any]:
    with server.stream(path, params) as chunks, pa.ipc.open_stream(_Chunks(chunks)) as reader:
        if not reader.schema.equals(RECORDS):
            raise RefusedByServer(200, "", f"{server.url} sends records of another shape: {reader.schema}")
        yield from reader


class _Chunks:
    """Chunks of bytes as the file that Arrow reads. The bytes are copied once, into the buffers of a batch."""

    closed = False

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def read(self, size: int) -> bytes:
        parts: list[memoryview] = []
        while size > 0:
            if not self._rest:
                self._rest = memoryview(next(self._chunks, b""))
                if not self._rest:
                    break
            part, self._rest = self._rest[:size], self._rest[size:]
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Whoever opened the stream closes it."""


# --- appending -----------------------------------------------------------------------------------------------------


class Written(msgspec.Struct, frozen=True):
    """What an append did. ``repeated``: it had been made before; then its seqs are not known here and 0."""

    first: int
    last: int
    ts: int
    count: int
    repeated: bool = False


class ServerTarget:
    """Where records are appended in bulk."""

    def __init__(self, url: str, key: str | None = None, *, patience: Patience = PATIENCE) -> None:
        self._talker = talker(url, key)
        self._patience = patience

    def append(
        self,
        log: str,
        table: Any,
        writer: str | None = None,
        before: Progress | None = None,
        progress: Progress | None = None,
        *,
        create: bool = True,
        ts: int | None = None,
        compression: str | None = None,
    ) -> Written:
        """Append the rows of a table (or of a batch) with a column ``data`` and, if need be, ``key``, ``node`` and
        ``meta``; all of them, or none. ``ts`` is the time that they are of, in milliseconds, if it is not now.

        With a ``writer`` its ``progress`` is noted in the same step, and the append is made only if it was ``before``
        until then (None: there was none). Then it is tried again whatever happens, and made once: if it turns out that
        the progress is already what it is to become, that is success. If it is something else, ProgressConflict.

        Without one, it is tried again only as long as the server has certainly done nothing; OutcomeUnknown if the
        connection ends before the answer.
        """
        params: dict[str, Any] = {"create": str(create).lower()}
        headers = {"content-type": MEDIA_TYPE}
        if ts is not None:
            params["ts"] = ts
        if writer is not None:
            if progress is None or _same(progress, before):
                raise ValueError("a writer has to say its progress, which is another with each append")
            params["writer"] = writer
            headers["strandline-progress"] = _header(progress)
            headers["strandline-progress-before"] = "absent" if before is None else _header(before)
        elif progress is not None or before is not None:
            raise ValueError("there is progress, but no writer whose it is")
        body = _encoded(table, compression)
        attempt = 0
        while True:
            try:
                response = self._talker.once(
                    "POST", place("records", log), params=params, headers=headers, content=body
                )
                return msgspec.json.decode(response.content, type=Written)
            except ProgressConflict as conflict:
                if _same(conflict.progress, progress):
                    return _REPEATED
                raise
            except (httpx.TransportError, Busy) as error:
                if writer is None and not isinstance(error, (Busy, httpx.ConnectError, httpx.ConnectTimeout)):
                    raise OutcomeUnknown(f"no answer came to an append to {log!r}: {error}") from error
                attempt += 1
                self._talker.wait(attempt, error, self._patience)

    def progress(self, log: str, writer: str) -> Progress | None:
        """How far the writer has come; None if it has noted nothing. Raises UnknownLog."""
        body = self._talker.ask(place("logs", log), {"writer": writer}, self._patience)
        return _decode(body, _OneLog).progress

    def forget(self, log: str, writer: str) -> bool:
        """Forget how far the writer has come; tells whether anything was known of it."""
        params = {"writer": writer}
        # To forget twice is to forget.
        response = self._talker.retried(
            lambda: self._talker.once("DELETE", place("progress", log), params=params), self._patience
        )
        return _decode(response.content, _Forgotten).forgotten


_REPEATED = Written(0, 0, 0, 0, repeated=True)


def _same(one: Progress | None, other: Progress | None) -> bool:
    """As JSON: 1, 1.0 and true are three things there."""
    return msgspec.json.encode(one, order="deterministic") == msgspec.json.encode(other, order="deterministic")


def _header(progress: Progress) -> str:
    """JSON in ASCII: all that a header can hold."""
    text = msgspec.json.encode(progress).decode()
    return "".join(each if each.isascii() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    pair = character.encode("utf-16-be").hex()
    return "".join(f"\\u{pair[at : at + 4]}" for at in range(0, len(pair), 4))


def _encoded(table: Any, compression: str | None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


# --- answers -------------------------------------------------------------------------------------------------------


class _OneLog(msgspec.Struct, kw_only=True):
    standing: list[tuple[int, int]]
    progress: Progress | None = None


class _Logs(msgspec.Struct, kw_only=True):
    directory: str
    logs: list[Raw]
    next: str | None


class _Forgotten(msgspec.Struct):
    forgotten: bool


def _info(log: bytes | Raw) -> LogInfo:
    """What is known of a log. The registry is kept as it is written: nothing but JSON keeps numbers of any size."""
    fields = _decode(log, dict[str, Raw])
    registry = bytes(fields.pop("registry", b"null"))
    info = _decode(msgspec.json.encode(fields), LogInfo)
    return info if registry == b"null" else msgspec.structs.replace(info, registry=registry)


def _decode(body: bytes | Raw, form: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=form)
    except msgspec.MsgspecError as error:
        raise RefusedByServer(200, "", f"the answer is not what a Strandline server gives: {error}") from None
