"""Which typed tables there are, and what their rows are made with.

A log has a typed table if its schema declares columns, whether a caller installed the schema or a profile did. A
declared table has one for the rows of all parents. If a log and a declared table have the same name, the declared table
has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Any, Literal

import msgspec
import pyarrow as pa

from strandline.engine.ownership import ROWS
from strandline.history.log_info import LogInfo
from strandline.history.source import History
from strandline.lake.typed_tables import LOG_ROW, TABLE_ROW, folder_of
from strandline.pipeline.typed_columns import PayloadColumns
from strandline.schema.lenses import Add
from strandline.schema.registry import Registry
from strandline.tables.versions import SCHEMAS, SchemaVersion

#: Part of every digest. Increase it when rows are made in another way, so that all tables are built again.
FORMAT = 1

#: Delta and Parquet readers do not accept these characters in names of columns.
_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=]")


class TableSource(msgspec.Struct, frozen=True, array_like=True):
    """What the rows of a typed table are made with: the registry of a log, or the recorded versions of a declared
    table's schema, as JSON."""

    name: str
    is_declared: bool
    document: bytes


class TableColumns:
    """The columns of a typed table: those of the row, and those of the payload with names that Delta accepts."""

    def __init__(self, source: TableSource) -> None:
        self.row = TABLE_ROW if source.is_declared else LOG_ROW
        if source.is_declared:
            self.versions = msgspec.json.decode(source.document, type=list[SchemaVersion])
            registry = Registry.installed(source.name, self.versions[-1].form)
        else:
            self.versions = []
            registry = Registry.load(source.document)
        self.payload = PayloadColumns(registry, self.row.names)
        self.schema = pa.schema([*self.row, *_accepted(self.payload.schema, self.row.names)])


@lru_cache(256)
def columns_of(source: TableSource) -> TableColumns:
    """The columns of a source; reading a registry takes a while."""
    return TableColumns(source)


class TableDefinition:
    """A typed table as it should be. ``logs`` are the logs whose own records are its rows, in the current round."""

    def __init__(self, source: TableSource, logs: list[LogInfo]) -> None:
        self.source = source
        self.logs = logs
        self.folder = folder_of(source.name)

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def kind(self) -> Literal["log", "table"]:
        return "table" if self.source.is_declared else "log"

    @cached_property
    def schema(self) -> Any:
        return columns_of(self.source).schema

    @cached_property
    def version(self) -> int:
        """The number of the current version of the schema."""
        columns = columns_of(self.source)
        return columns.versions[-1].version if columns.versions else Registry.load(self.source.document).current_version

    @cached_property
    def shape(self) -> int:
        """A number that changes whenever rows are made differently, for a transaction id."""
        if self.source.is_declared:
            made_with: Any = msgspec.Raw(self.source.document)
        else:
            # Search configuration and routing keys have no effect on rows. Neither has the start of a new version: it
            # starts after all records so far.
            document = Registry.load(self.source.document).document()
            made_with = [document.current_version, document.schemas, document.lenses]
        encoded = msgspec.json.encode([FORMAT, self.name, self.source.is_declared, str(self.schema), made_with])
        return int.from_bytes(sha256(encoded).digest()[:8], "big") >> 1

    def new_columns(self, version: int, names: Iterable[str]) -> list[str] | None:
        """The columns that the rows of an earlier version lack, if that is all they lack: they are null in all of them.
        None if the table must be built again. ``names`` are the columns of the table."""
        if self.source.is_declared:
            return None  # new fields have defaults
        registry, known = Registry.load(self.source.document), set(names)
        before = registry.schemas.get(version)
        if before is None or not _is_closed(before) or version >= registry.current_version:
            return None
        old = PayloadColumns(Registry.installed(self.name, before), LOG_ROW.names)
        old_schema = pa.schema([*LOG_ROW, *_accepted(old.schema, LOG_ROW.names)])
        if set(old_schema.names) != known or any(
            field.name not in self.schema.names or field != self.schema.field(field.name) for field in old_schema
        ):
            return None
        properties = before.get("properties", {})
        for number in range(version, registry.current_version):
            for operation in registry.lenses[number].operations:
                # The operation is about a property that no row has yet.
                if not (isinstance(operation, Add) and operation.default is None and len(operation.path) == 1):
                    return None
                if operation.path[0] in properties:
                    return None
        return [name for name in self.schema.names if name not in known]


class Definitions:
    """The definitions of a driver. Reading a registry takes half a millisecond, and few change between two rounds."""

    def __init__(self) -> None:
        #: By source; None for a source that has no typed table.
        self._known: dict[TableSource, TableDefinition | None] = {}

    def of(self, history: History, logs: Iterable[LogInfo]) -> list[TableDefinition]:
        """The typed tables of these logs, which must be all logs, by name."""
        sources: dict[str, tuple[TableSource, list[LogInfo]]] = {}
        rows: dict[str, list[LogInfo]] = {}
        for info in logs:
            if info.owner is not None:
                if info.owner.part == ROWS:
                    rows.setdefault(info.owner.name, []).append(info)
            elif info.registry is not None:
                sources[info.name] = TableSource(info.name, False, info.registry), [info]
        if rows:
            for name, document in _declared(history).items():
                if name in rows:
                    sources[name] = TableSource(name, True, document), rows[name]
        known, self._known = self._known, {}
        found = []
        for _, (source, its_logs) in sorted(sources.items()):
            if source not in known:
                known[source] = TableDefinition(source, []) if _has_columns(source) else None
            definition = self._known[source] = known[source]
            if definition is not None:
                definition.logs = its_logs
                found.append(definition)
        return found


def _has_columns(source: TableSource) -> bool:
    """Whether there is a schema that declares columns. Without, a table would have nothing but JSON text."""
    if source.is_declared:
        return True
    registry = Registry.load(source.document)
    return bool(registry.current_version) and PayloadColumns(registry).has_types


def _declared(history: History) -> Mapping[str, bytes]:
    """The recorded versions of declared tables, as JSON, by table."""
    # An API key for some logs may not see this one.
    log = next((info for info in history.logs(SCHEMAS) if info.name == SCHEMAS), None)
    if log is None:
        return {}
    found: dict[str, list[SchemaVersion]] = {}
    for piece in history.pieces(log, 0, log.head, 100_000):
        for batch in piece.read():
            for data in batch.column("data").to_pylist():
                version = msgspec.json.decode(data, type=SchemaVersion)
                found.setdefault(version.table, []).append(version)
    return {table: msgspec.json.encode(versions) for table, versions in found.items()}


def _is_closed(schema: Any) -> bool:
    """Whether an object can have no other properties than the declared ones."""
    return (
        isinstance(schema, dict) and schema.get("additionalProperties") is False and "patternProperties" not in schema
    )


# --- names that Delta accepts ----------------------------------------------------------------------------------------


def _accepted(fields: Iterable[Any], taken: Iterable[str] = ()) -> list[Any]:
    used = {name.lower() for name in taken}
    found = []
    for field in fields:
        name = _FORBIDDEN.sub("_", field.name) or "_"
        while name.lower() in used:
            name = f"{name}_"
        used.add(name.lower())
        found.append(pa.field(name, _accepted_type(field.type), field.nullable))
    return found


def _accepted_type(kind: Any) -> Any:
    if pa.types.is_struct(kind):
        return pa.struct(_accepted([kind.field(number) for number in range(kind.num_fields)]))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _accepted_type(kind.value_type)))
    return kind
