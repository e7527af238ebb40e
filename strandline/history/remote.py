"""History by URL: read the logs of a server, and append to them, in bulk over HTTP.

Requests use the transport of the client, with its rules for retries. Some answers become specific exceptions:
UnknownLog, LogReplaced, ProgressConflict.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx
import msgspec
from msgspec import Raw

from strandline.arrow import pa
from strandline.client.calls import ALWAYS, Answer, Request, delete, get, query_string, segment
from strandline.client.connection import LIMITS, Servers
from strandline.client.errors import BadAnswer, Conflict, Refused, StrandlineError
from strandline.client.retry import Patience, Tries
from strandline.client.synchronous.transport import ByteStream, Transport
from strandline.client.thread_concurrency import sync_sleep
from strandline.engine.errors import UnknownLog
from strandline.history.log_info import LogInfo
from strandline.history.pieces import BATCH_ROWS, EVERYTHING, Where, projected

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
#: The content type of an append of staged rows.
SELECTION_TYPE = "application/vnd.strandline.staged+json"
#: The number of logs per page of the list.
PAGE_LOGS = 1000
#: The number of ids of staged rows that one request removes: they are in its URL.
UNSTAGED_AT_ONCE = 50
#: How long the server may take to answer, and how long a stream may pause. The server may be busy with other Spark
#: tasks.
SILENCE_SECONDS = 60.0
#: A server that restarts is back within a minute. Waiting is cheaper than a failed task.
PATIENCE = Patience(seconds=60.0, first_wait=0.1, longest_wait=5.0)
#: For the first request, so that a wrong URL is reported quickly.
FIRST_PATIENCE = Patience(seconds=1.5, first_wait=0.1, longest_wait=5.0)
#: Requests to this machine do not use a proxy.
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

Progress = dict[str, Any]
T = TypeVar("T")


class LogReplaced(Conflict):
    """Another log has this name now."""


class ProgressConflict(StrandlineError):
    """The stored progress of a writer is not the expected one. ``progress`` is the stored progress, or None if there is
    none."""

    def __init__(self, message: str, progress: Progress | None) -> None:
        super().__init__(f"{message} (stored progress: {progress})")
        self.progress = progress


# --- requests ------------------------------------------------------------------------------------------------------

_lock = threading.Lock()
_transports: dict[tuple[int, str, str | None], Transport] = {}


def transport_to(url: str, key: str | None) -> Transport:
    """Return the transport to a server. All users of this API key in this process share it; a child process has its
    own. Raises BadUrl."""
    with _lock:
        known = (os.getpid(), url, key)
        if known not in _transports:
            servers = Servers(url, key)
            _transports[known] = Transport(servers, SILENCE_SECONDS, PATIENCE, _through_proxy(servers))
        return _transports[known]


def _through_proxy(servers: Servers) -> httpx.HTTPTransport | None:
    """Return a transport through the proxy that the environment names; None if there is no proxy for this server. Of
    several servers, the first one decides."""
    parts = urlsplit(servers.addresses[0].url)
    host = parts.hostname or ""
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy is None or host in _LOOPBACK or proxy_bypass(host):
        return None
    return httpx.HTTPTransport(verify=servers.verify(), limits=LIMITS, proxy=proxy)


def _call(transport: Transport, request: Request, patience: Patience) -> Answer:
    try:
        return transport.call(request, patience=patience)
    except Refused as error:
        raise _meaning(error) from error


def _meaning(error: Refused) -> Exception:
    """Convert an answer of the server to an exception for readers and writers of logs."""
    if error.code == "log_not_found":
        return UnknownLog(str(error.detail.get("log", "")))
    if error.code == "epoch_changed":
        return LogReplaced(error.status, error.code, error.message, error.detail)
    if error.code == "progress_conflict":
        return ProgressConflict(error.message, error.detail.get("progress"))
    return error


def _path(kind: str, log: str) -> str:
    return f"/arrow/{kind}/{segment(log)}"


# --- reading -------------------------------------------------------------------------------------------------------


class ServerHistory:
    """The logs of a server, as they are at the time of each call. Pieces can be read while the server is running."""

    def __init__(
        self, url: str, key: str | None = None, *, compression: str | None = None, patience: Patience = PATIENCE
    ) -> None:
        """``compression``: zstd or lz4, for a slow connection. Raises BadUrl, Unreachable and Refused."""
        self._url = url
        self._key = key
        self._compression = compression
        self._patience = patience
        self._transport = transport_to(url, key)
        #: The id of the data directory.
        self.directory = self._page("", "", 1, min(patience, FIRST_PATIENCE, key=lambda each: each.seconds)).directory

    def close(self) -> None:
        """Do nothing: nothing is held open."""

    def logs(self, prefix: str = "") -> list[LogInfo]:
        """Return all logs that the API key may read, by name, including internal ones."""
        found: list[LogInfo] = []
        after: str | None = ""
        while after is not None:
            page = self._page(prefix, after, PAGE_LOGS, self._patience)
            found += [_info(log) for log in page.logs]
            after = page.next
        return found

    def log(self, name: str) -> LogInfo:
        """Return a log. Raises UnknownLog."""
        return _info(self._one(name))

    def standing(self, log: LogInfo) -> list[tuple[int, int]]:
        """Return the visible seqs as inclusive ranges. The ranges may contain seqs that never had a record. Raises
        LogReplaced if another log has this name now."""
        return _decode(self._one(log.name, epoch=log.epoch), _OneLog).standing

    def pieces(
        self, log: LogInfo, after: int, through: int, rows: int, where: Where = EVERYTHING, *, own: bool = False
    ) -> list[ServerPiece]:
        """Return the records after ``after`` up to ``through``, in pieces of about ``rows`` records. With ``own``, omit
        records that a fork shares with its source."""
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
        return _decode(_call(self._transport, get("/arrow/logs", params), patience).body, _Logs)

    def _one(self, name: str, **params: Any) -> bytes:
        return _call(self._transport, get(_path("logs", name), params), self._patience).body


# --- pieces --------------------------------------------------------------------------------------------------------


class ServerPiece(msgspec.Struct, frozen=True, array_like=True, tag="server"):
    """Records of a log, to be read from a server."""

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
        """Describe the piece without the API key, which must not appear in output."""
        return f"<ServerPiece {self.log!r} {self.first}..{self.last} of {self.url}>"

    def read(self, batch_rows: int = BATCH_ROWS, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield the records as batches of ``RECORDS``, in order. With ``columns``, which include ``seq``, the server
        sends only these columns. An interrupted stream is resumed after the last
        received record. Raises LogReplaced if another log has this name now, and UnknownLog."""
        transport = transport_to(self.url, self.key)
        after, tries = self.first - 1, Tries(self.patience, servers=len(transport.servers))
        while True:
            try:
                request = get(_path("records", self.log), self._params(after, batch_rows, columns))
                for batch in _batches(transport, request, projected(columns)):
                    yield batch
                    after = batch.column("seq")[-1].as_py()
                    tries.succeeded()
                return
            except Refused as error:
                wait = _wait(tries, error)
            except StrandlineError as error:
                wait = tries.failed(error)
            sync_sleep(wait)

    def _params(self, after: int, batch_rows: int, columns: Sequence[str] | None) -> dict[str, Any]:
        return {
            "after": after,
            "through": self.last,
            "epoch": self.epoch,
            "batch_rows": batch_rows,
            "key": self.where.key,
            "since": self.where.since,
            "until": self.where.until,
            "compression": self.compression,
            "columns": None if columns is None else ",".join(columns),
        }


def _wait(tries: Tries, error: Refused) -> float:
    try:
        return tries.failed(error)
    except Refused:
        raise _meaning(error) from error


def _batches(transport: Transport, request: Request, schema: Any) -> Iterator[Any]:
    with closing(transport.stream(request, SILENCE_SECONDS)) as stream, pa.ipc.open_stream(_File(stream)) as reader:
        if not reader.schema.equals(schema):
            raise BadAnswer(f"{transport.servers.current.url} sent records with an unexpected schema: {reader.schema}")
        yield from reader


class _File:
    """A stream of bytes as a file for Arrow. The bytes are copied once, into the buffers of a batch."""

    closed = False

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._rest = memoryview(b"")

    def read(self, size: int) -> bytes:
        parts: list[memoryview] = []
        while size > 0:
            if not self._rest:
                self._rest = memoryview(self._stream.next())
                if not self._rest:
                    break
            part, self._rest = self._rest[:size], self._rest[size:]
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Do nothing: the function that opened the stream closes it."""


# --- appending -----------------------------------------------------------------------------------------------------


class BulkAppendResult(msgspec.Struct, frozen=True):
    """The result of an append. ``repeated``: the append had been made before, and its seqs are unknown here and 0."""

    first: int
    last: int
    ts: int
    count: int
    repeated: bool = False


class ServerTarget:
    """Appends records to the logs of a server in bulk."""

    def __init__(self, url: str, key: str | None = None, *, patience: Patience = PATIENCE) -> None:
        self._transport = transport_to(url, key)
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
    ) -> BulkAppendResult:
        """Append the rows of a table or batch with a column ``data`` and, optionally, ``key``, ``node`` and ``meta``:
        all of them, or none. ``ts`` is the time of the records in milliseconds; the default is the current time.

        With a ``writer``, its ``progress`` is stored in the same step, and the append is made only if the stored
        progress is ``before`` (None: there is none). The request is then repeated after any failure and applied once:
        if the stored progress is already ``progress``, the append has been made. Raises ProgressConflict if it is
        anything else.

        Without a writer, the request is repeated only if the server has certainly not applied it. Raises Unreachable
        with ``sent`` if the connection ends before the answer.
        """
        body = _encoded(table, compression)
        return self._append(log, body, MEDIA_TYPE, writer, before, progress, create=create, ts=ts)

    def append_staged(
        self,
        log: str,
        parts: Sequence[str],
        rows: Sequence[tuple[int, int, int]],
        writer: str,
        before: Progress | None,
        progress: Progress,
        *,
        create: bool = True,
    ) -> BulkAppendResult:
        """Append staged rows as ``append`` does. ``parts`` are their ids, and ``rows`` runs of rows in their order: the
        index of a part, the first row, and the number of rows."""
        body = msgspec.json.encode({"parts": parts, "rows": rows})
        return self._append(log, body, SELECTION_TYPE, writer, before, progress, create=create)

    def stage(self, log: str, table: Any, *, create: bool = True) -> str:
        """Send rows for ``append_staged``, with the checks of an append. Returns their id."""
        request = Request(
            "POST",
            _path("staged", log) + query_string({"create": create}),
            _encoded(table, None),
            ((b"content-type", MEDIA_TYPE.encode()),),
            repeatable=ALWAYS,
        )
        return _decode(_call(self._transport, request, self._patience).body, _Staged).staged

    def unstage(self, log: str, ids: Sequence[str]) -> None:
        """Remove staged rows."""
        for at in range(0, len(ids), UNSTAGED_AT_ONCE):
            request = delete(_path("staged", log), {"ids": ",".join(ids[at : at + UNSTAGED_AT_ONCE])})
            _call(self._transport, request, self._patience)

    def _append(
        self,
        log: str,
        body: bytes,
        media_type: str,
        writer: str | None,
        before: Progress | None,
        progress: Progress | None,
        *,
        create: bool,
        ts: int | None = None,
    ) -> BulkAppendResult:
        params: dict[str, Any] = {"create": create}
        headers = [(b"content-type", media_type.encode())]
        if ts is not None:
            params["ts"] = ts
        if writer is not None:
            if progress is None or _same(progress, before):
                raise ValueError("a writer needs progress that differs from the progress before the append")
            params["writer"] = writer
            headers.append((b"strandline-progress", _header(progress)))
            headers.append((b"strandline-progress-before", b"absent" if before is None else _header(before)))
        elif progress is not None or before is not None:
            raise ValueError("progress requires a writer; pass writer as well")
        request = Request(
            "POST",
            _path("records", log) + query_string(params),
            body,
            tuple(headers),
            repeatable=0.0 if writer is None else ALWAYS,
        )
        try:
            return _decode(_call(self._transport, request, self._patience).body, BulkAppendResult)
        except ProgressConflict as conflict:
            if _same(conflict.progress, progress):
                return _REPEATED
            raise

    def progress(self, log: str, writer: str) -> Progress | None:
        """Return the progress of the writer; None if it has stored none. Raises UnknownLog."""
        answer = _call(self._transport, get(_path("logs", log), {"writer": writer}), self._patience)
        return _decode(answer.body, _OneLog).progress

    def forget(self, log: str, writer: str) -> bool:
        """Remove the progress of the writer. Return whether there was any."""
        answer = _call(self._transport, delete(_path("progress", log), {"writer": writer}), self._patience)
        return _decode(answer.body, _Forgotten).forgotten


_REPEATED = BulkAppendResult(0, 0, 0, 0, repeated=True)


def _same(one: Progress | None, other: Progress | None) -> bool:
    """Compare as JSON, where 1, 1.0 and true are different."""
    return msgspec.json.encode(one, order="deterministic") == msgspec.json.encode(other, order="deterministic")


def _header(progress: Progress) -> bytes:
    """Encode as ASCII JSON, for use in a header."""
    text = msgspec.json.encode(progress).decode()
    return "".join(each if each.isascii() else _escaped(each) for each in text).encode()


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


class _Staged(msgspec.Struct):
    staged: str


class _Forgotten(msgspec.Struct):
    forgotten: bool


def _info(log: bytes | Raw) -> LogInfo:
    """Describe a log. The registry stays JSON text, because other forms do not preserve numbers of any size."""
    fields = _decode(log, dict[str, Raw])
    registry = bytes(fields.pop("registry", b"null"))
    info = _decode(msgspec.json.encode(fields), LogInfo)
    return info if registry == b"null" else msgspec.structs.replace(info, registry=registry)


def _decode(body: bytes | Raw, form: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=form)
    except msgspec.MsgspecError as error:
        raise BadAnswer(f"the answer is not from a Strandline server: {error}") from None
