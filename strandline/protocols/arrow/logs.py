"""Lists of logs, with everything that a client needs to read them in pieces."""

from __future__ import annotations

from itertools import islice

import msgspec
from msgspec import UNSET

from strandline.engine import Log
from strandline.engine.errors import UnknownLog
from strandline.engine.operations import erasures
from strandline.engine.operations.journaled import let_all_expire
from strandline.engine.reads.status import known_live_ranges_of
from strandline.history.log_info import LogInfo, info_of
from strandline.protocols.arrow.context import ArrowContext
from strandline.protocols.arrow.errors import epoch_changed
from strandline.protocols.arrow.progress import progress_of, writer_of
from strandline.protocols.arrow.wire import LogAnswer, LogsAnswer, OneLogAnswer
from strandline.service.access import Access
from strandline.service.catalog import Catalog
from strandline.service.http import Call, Reply
from strandline.service.parameters import name_of, number

DEFAULT_LOGS = 1000
MAX_LOGS = 10_000


class ArrowLogs:
    def __init__(self, context: ArrowContext) -> None:
        self._context = context

    async def list(self, call: Call) -> Reply:
        """GET /arrow/logs"""
        limit = number(call, "limit", DEFAULT_LOGS, 1, MAX_LOGS) or DEFAULT_LOGS
        prefix, after = call.query.get("prefix", ""), call.query.get("after", "")
        internal = call.flag("internal", False)
        return await self._context.work(lambda: self._list(call.access, prefix, after, limit, internal))

    def _list(self, access: Access, prefix: str, after: str, limit: int, internal: bool) -> Reply:
        names = self._context.kernel.catalog.walk(access, prefix=prefix, after=after, internal=internal)
        described = (self._shown(name, access, internal) for name in names)
        infos = list(islice((info for info in described if info is not None), limit + 1))
        shown = infos[:limit]
        return Reply(
            msgspec.json.encode(
                LogsAnswer(
                    directory=self._context.directory,
                    logs=[LogAnswer.of(info) for info in shown],
                    next=shown[-1].name if len(infos) > limit else None,
                )
            )
        )

    def _shown(self, name: str, access: Access, internal: bool) -> LogInfo | None:
        log = self._context.engine.find(name)
        if log is None or not Catalog.visible(log, access, internal=internal):
            return None
        try:
            return _info(log)
        except UnknownLog:  # dropped meanwhile
            return None

    async def one(self, call: Call) -> Reply:
        """GET /arrow/logs/{name}"""
        log = self._context.log(name_of(call), call.access)
        writer = writer_of(call)
        epoch = number(call, "epoch")
        if epoch is not None and epoch != log.epoch:
            raise epoch_changed(log.name, log.epoch)
        # An event shows once it is durable, but its change may show before. Readers apply events to copies of a log, so
        # they must get the events of all changes that they can see.
        if writer is not None or log.name == erasures.NAME:
            await self._context.settled(log)
        return await self._context.work(lambda: self._one(log, writer))

    def _one(self, log: Log, writer: str | None) -> Reply:
        with self._context.engine.lock:
            info, ranges = _info(log), known_live_ranges_of(log).ranges
            progress = UNSET if writer is None else progress_of(log, writer)
        return Reply(
            msgspec.json.encode(
                OneLogAnswer(
                    directory=self._context.directory,
                    standing=ranges,
                    progress=progress,
                    **LogAnswer.fields_of(info),
                )
            )
        )


def _info(log: Log) -> LogInfo:
    with log.engine.lock:
        log.book.check_there()
        let_all_expire(log.engine, log.book)
        return info_of(log.book)
