"""Appending records in bulk, all or nothing, together with the progress of the writer."""

from __future__ import annotations

import msgspec

from strandline.engine import Appended, Batch, Commit, Log
from strandline.engine.ownership import media_type
from strandline.engine.record import is_internal
from strandline.protocols.arrow.context import ArrowContext
from strandline.protocols.arrow.decoder import Rules, decode
from strandline.protocols.arrow.encoder import MEDIA_TYPE
from strandline.protocols.arrow.errors import progress_conflict
from strandline.protocols.arrow.progress import Advance
from strandline.protocols.arrow.staged import SELECTION, StagedRows, StagedSelection, staged_answer
from strandline.protocols.arrow.wire import AppendAnswer
from strandline.service.admission import reply_of
from strandline.service.catalog import check_append, holds_json
from strandline.service.http import Call, Reply
from strandline.service.log_config import check_name, default_config
from strandline.service.parameters import moment, name_of
from strandline.service.problems import UNSUPPORTED_MEDIA_TYPE, Refusal, invalid, log_not_found, not_writable

#: How far the clock of a writer may be ahead of the server's.
MAX_AHEAD_MS = 300_000


class ArrowAppends:
    def __init__(self, context: ArrowContext, max_bytes: int, staged: StagedRows) -> None:
        """``max_bytes``: the limit of a body, both as sent and decompressed."""
        self._context = context
        self._max_bytes = max_bytes
        self._staged = staged

    async def stage(self, call: Call) -> Reply:
        """POST /arrow/staged/{name}"""
        _check_media_type(call, MEDIA_TYPE)
        name = name_of(call)
        rules = self._rules(self._find(name, call.flag("create", False)))
        self._context.engine.check_writable()
        staged = await self._context.work(lambda: self._stage(name, call.body, rules))
        return staged

    def _stage(self, name: str, body: bytes, rules: Rules) -> Reply:
        batch = decode(body, rules)
        if batch is None:
            raise invalid("the body has no rows to stage")
        return staged_answer(self._staged.add(name, batch, rules), len(batch))

    async def append(self, call: Call) -> Reply:
        """POST /arrow/records/{name}"""
        is_selection = _check_media_type(call, MEDIA_TYPE, SELECTION) == SELECTION
        name, advance, create = name_of(call), Advance.of(call), call.flag("create", False)
        ts = self._time(call)
        rules = self._rules(self._find(name, create))
        if is_selection:
            batch = await self._context.work(lambda: self._staged.select(name, _selection(call.body), rules))
        else:
            batch = await self._context.work(lambda: decode(call.body, rules))

        async def act() -> Reply:
            log = self._find(name, create)
            if self._rules(log) != rules:
                raise not_writable(name, "it was recreated with another content type during the request; try again")
            if log is None:
                return await self._into_new(name, batch, advance, ts)
            return _answer(await self._written(log, batch, advance, ts), advance, 200)

        return await reply_of(self._context.kernel.admission.write(lambda _: act()))

    def _time(self, call: Call) -> int | None:
        """The time that the request gives the records; None: the time of the append. Times never decrease in a log, so
        a time in the far future would become the time of all later records."""
        ts, now = moment(call, "ts"), self._context.hub.now()
        if ts is not None and ts > max(now, self._context.hub.wall()) + MAX_AHEAD_MS:
            raise invalid(f"ts {ts} is too far in the future; the time of the server is {now}")
        return ts

    def _find(self, name: str, create: bool) -> Log | None:
        """The log to append to; None if the append creates it."""
        if is_internal(name):
            raise not_writable(name, "it is an internal log of the server")
        log = self._context.kernel.catalog.find(name)
        if log is None:
            if not create:
                raise log_not_found(name)
            check_name(name)
            return None
        check_append(log)
        self._context.kernel.catalog.use(log)
        return log

    def _rules(self, log: Log | None) -> Rules:
        settings, options = self._context.limits, self._context.engine.options
        is_json = log is None or holds_json(log)
        return Rules(
            is_json=is_json,
            max_bytes=self._max_bytes,
            max_record_bytes=settings.max_record_bytes if is_json else options.max_record_bytes,
            max_meta_bytes=settings.max_meta_bytes,
            max_meta_keys=settings.max_meta_keys,
            max_key_bytes=settings.max_tag_bytes,
            max_node_bytes=settings.max_node_bytes,
        )

    async def _into_new(self, name: str, batch: Batch | None, advance: Advance | None, ts: int | None) -> Reply:
        context = self._context
        if advance is not None and advance.before is not None:
            raise progress_conflict(advance.writer, None)
        log, made = context.kernel.catalog.create(name, default_config())
        try:
            appended = await self._written(log, batch, advance, ts)
        except BaseException:
            # Keep the log if another request has appended to it meanwhile.
            if not log.dropped and log.next_seq == 1:
                context.kernel.catalog.unmake(log)
            raise
        await context.hub.when_done(made, lambda _: None)
        return _answer(appended, advance, 201)

    async def _written(self, log: Log, batch: Batch | None, advance: Advance | None, ts: int | None) -> Appended:
        """Append, and wait until the records are as durable as the log promises. A worker thread writes the frame,
        since a large batch would block the event loop."""
        try:
            commit = await self._context.work(lambda: self._write(log, batch, advance, ts))
        except Refusal:
            # The answer may say that the records are already in the log, so they must be durable before it is sent.
            await self._context.settled(log)
            raise
        appended: Appended = await self._context.hub.when_done(commit, lambda appended: appended)
        return appended

    def _write(self, log: Log, batch: Batch | None, advance: Advance | None, ts: int | None) -> Commit[Appended]:
        notes = None if advance is None else advance.notes
        # The lock keeps other writers out between the checks and the append.
        with self._context.engine.lock:
            check_append(log)
            if advance is not None:
                advance.check(log)
            if batch is not None:
                return log.append(batch, notes=notes, ts=ts)
            if notes is not None:
                return log.note(notes)
            return Commit.of(Appended(log.next_seq, log.next_seq - 1, log.state().last_ts))


def _check_media_type(call: Call, *allowed: str) -> str:
    sent = media_type(call.head.headers.get(b"content-type", b"").decode("latin-1"))
    if sent not in allowed:
        raise Refusal(UNSUPPORTED_MEDIA_TYPE, f"the content type must be {' or '.join(allowed)}")
    return sent


def _selection(body: bytes) -> StagedSelection:
    try:
        return msgspec.json.decode(body, type=StagedSelection)
    except msgspec.MsgspecError as error:
        wanted = '{"parts": [id, …], "rows": [[part, first row, number of rows], …]}'
        raise invalid(f"the body must be {wanted}: {error}") from None


def _answer(appended: Appended, advance: Advance | None, status: int) -> Reply:
    answer = AppendAnswer(
        first=appended.first,
        last=appended.last,
        ts=appended.ts,
        count=appended.count,
        progress=None if advance is None else advance.after,
    )
    return Reply(msgspec.json.encode(answer), status)
