"""Tries a change of the schema or the searchable fields of a log with its last records. Changes nothing."""

from __future__ import annotations

from time import perf_counter

import msgspec

from strandline.protocols.console.context import ConsoleContext
from strandline.schema.dry_run import dry_run
from strandline.schema.errors import SchemaError
from strandline.service.catalog import holds_json, registry_of
from strandline.service.http import Call, Reply
from strandline.service.parameters import number
from strandline.service.problems import invalid

DEFAULT_LIMIT = 1_000
MAX_LIMIT = 10_000
#: The size of the data of these records. One record is read whatever its size.
MAX_BYTES = 8 << 20
#: When a request stops examining records.
MAX_SECONDS = 2.0


class DryRuns:
    def __init__(self, context: ConsoleContext) -> None:
        self._context = context

    async def post(self, call: Call) -> Reply:
        """POST /console/api/log/{name}/dry-run"""
        log = self._context.log(call)
        limit = number(call, "limit", DEFAULT_LIMIT, 1, MAX_LIMIT) or DEFAULT_LIMIT
        if not holds_json(log):
            raise invalid("only a log of JSON can have a schema or searchable fields")

        def look() -> Reply:
            until = perf_counter() + MAX_SECONDS
            page = log.read_back(None, limit, max_bytes=MAX_BYTES)
            try:
                found = dry_run(
                    registry_of(log), call.body, log.next_seq - 1, page.seqs, page.data, lambda: perf_counter() >= until
                )
            except SchemaError as error:
                raise invalid(str(error)) from None
            return Reply(msgspec.json.encode(found))

        return await self._context.work(look)
