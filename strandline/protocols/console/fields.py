"""The fields of a log: for completion those that its search configuration declares and those of its records, and a
proposal of a search configuration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from strandline.engine import Log
from strandline.engine.ownership import REGISTRY
from strandline.protocols.console.context import ConsoleContext
from strandline.protocols.console.wire import FieldRow, FieldsAnswer, InferenceAnswer
from strandline.query.declaration import SearchDeclaration
from strandline.query.inference import SAMPLE_BYTES, SAMPLE_RECORDS, infer_search
from strandline.schema.log_search import log_search
from strandline.service.catalog import holds_json
from strandline.service.http import Call, Reply

#: The number of recent records that are inspected, and limits for their size, depth and fields.
LOOKED_AT = 100
MAX_BYTES = 1 << 20
MAX_DEPTH = 4
MAX_FIELDS = 200

_decode = msgspec.json.Decoder().decode
_TYPES: dict[type, str] = {str: "string", bool: "bool", int: "integer", float: "float", list: "array", dict: "object"}


class Fields:
    def __init__(self, context: ConsoleContext) -> None:
        self._context = context

    async def get(self, call: Call) -> Reply:
        """GET /console/api/fields/{name}"""
        log = self._context.log(call)

        def look() -> Reply:
            declared = declared_fields(log)
            names = {field.name for field in declared}
            found = [field for field in fields_of_records(log) if field.name not in names]
            return Reply(msgspec.json.encode(FieldsAnswer(fields=(declared + found)[:MAX_FIELDS])))

        return await self._context.work(look)

    async def infer(self, call: Call) -> Reply:
        """GET /console/api/log/{name}/inference"""
        log = self._context.log(call)

        def look() -> Reply:
            is_json = holds_json(log)
            sample = log.read_back(None, SAMPLE_RECORDS, max_bytes=SAMPLE_BYTES).data if is_json else ()
            installed = log_search(log.notes.get(REGISTRY))
            found = infer_search(sample, None if installed is None else installed.config.document())
            search = cast(SearchDeclaration | None, found.search)
            answer = InferenceAnswer(records=found.records, fields=found.fields, search=search)
            return Reply(msgspec.json.encode(answer))

        return await self._context.work(look)


def declared_fields(log: Log) -> list[FieldRow]:
    """The fields and aliases of the log's search configuration."""
    search = log_search(log.notes.get(REGISTRY))
    if search is None:
        return []
    config = search.config
    kinds = {name: field.kind for name, field in config.fields.items()}
    kinds |= {alias: config.fields[name].kind for alias, name in config.aliases.items()}
    return [FieldRow(name=name, type=kind, origin="configuration") for name, kind in kinds.items()]


def fields_of_records(log: Log) -> list[FieldRow]:
    """The fields of the last records, ordered by name. A field with different types is "mixed"."""
    if not holds_json(log):
        return []
    types: dict[str, str] = {}
    for data in log.read_back(None, LOOKED_AT, max_bytes=MAX_BYTES).data:
        try:
            members = list(_members(_decode(data)))
        except (msgspec.MsgspecError, RecursionError):
            continue
        for name, kind in members:
            known = types.setdefault(name, kind)
            if known != kind:
                types[name] = "float" if {known, kind} == {"integer", "float"} else "mixed"
    return [FieldRow(name=name, type=types[name], origin="records") for name in sorted(types)]


def _members(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """The leaves of an object, with dotted paths and types."""
    if isinstance(value, dict) and value and depth < MAX_DEPTH:
        for name, member in value.items():
            yield from _members(member, f"{path}.{name}" if path else name, depth + 1)
    elif path and value is not None:
        yield path, _TYPES[type(value)]
