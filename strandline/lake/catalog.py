"""The catalog: the SQL names of everything in the lake, and statements that create it in other engines.

The folder ``catalog/`` has a file with a ``CREATE TABLE`` statement per table, ``views/logs.sql`` with a
``CREATE VIEW`` statement per log without a typed table, and ``catalog.json`` with the same as data. Statements are
those of Spark.

The view of a log parses its payloads when it is queried: ``value`` is a VARIANT. The table ``records`` has only the
text, because most readers of Delta cannot read a table with a VARIANT column at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Literal

import msgspec

from strandline.lake.location import Lake

FOLDER = "catalog"
DATA = f"{FOLDER}/catalog.json"
VIEWS = f"{FOLDER}/views/logs.sql"
#: The tables that every lake may have. Logs and declared tables get other names.
LAKE_TABLES = ("records", "latest", "keys", "companions", "rollups", "audit")
#: The maximum number of views. The file of the views is written when one changes.
MAX_VIEWS = 10_000

_PLAIN = re.compile(r"[A-Za-z0-9_]{1,100}")
_OTHER = re.compile(r"[^A-Za-z0-9_]+")


class CatalogEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table of the lake at ``path``, or a view of a log's records. ``of`` is the log or the table. ``declared`` is a
    table that a project declares. Names that differ only in case are the same name to SQL, so no two entries have such
    names."""

    name: str
    kind: Literal["lake", "log", "table", "view", "declared"]
    of: str = ""
    path: str = ""
    #: Views only: whether the payloads are JSON.
    is_json: bool = True


class Catalog(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``more_logs``: logs without a view, because there are too many."""

    entries: list[CatalogEntry] = []
    more_logs: int = 0


def make_catalog(
    lake_tables: Iterable[str],
    tables: Iterable[tuple[Literal["log", "table", "declared"], str, str]],
    logs: Iterable[tuple[str, bool]],
) -> Catalog:
    """``tables`` has kind, name and path of each typed table and each table of a project, ``logs`` the name of each log
    without a typed table and whether its payloads are JSON."""
    untyped = sorted(logs)
    wanted = [
        *(CatalogEntry(name=name, kind=kind, of=name, path=path) for kind, name, path in tables),
        *(CatalogEntry(name=name, kind="view", of=name, is_json=is_json) for name, is_json in untyped[:MAX_VIEWS]),
    ]
    entries = [CatalogEntry(name=name, kind="lake", path=name) for name in lake_tables]
    return Catalog(entries=[*entries, *_named(wanted)], more_logs=max(0, len(untyped) - MAX_VIEWS))


def _named(wanted: list[CatalogEntry]) -> Iterator[CatalogEntry]:
    """The entries with distinct names. A name that SQL accepts stays as it is if it is not taken."""
    taken = set(LAKE_TABLES)
    for entry in sorted(wanted, key=lambda entry: _PLAIN.fullmatch(entry.name) is None):
        name = _OTHER.sub("_", entry.name)[:100]
        while name.lower() in taken:
            name = f"{name}_{sha256(f'{entry.kind} {entry.of}'.encode()).hexdigest()[:8]}"
        taken.add(name.lower())
        yield msgspec.structs.replace(entry, name=name)


# --- statements ------------------------------------------------------------------------------------------------------


def statement(lake: Lake, entry: CatalogEntry, view: str = "VIEW") -> str:
    """The statement that creates an entry. ``view``: how views are created, for example as ``TEMPORARY VIEW``."""
    if entry.kind != "view":
        place = _literal(lake.place_of(entry.path))
        return f"CREATE TABLE IF NOT EXISTS `{entry.name}` USING delta LOCATION {place}"
    value = ", try_parse_json(data) AS value" if entry.is_json else ""
    columns = f"log, epoch, seq, ts, key, node, meta, data, bytes{value}"
    return f"CREATE OR REPLACE {view} `{entry.name}` AS SELECT {columns} FROM records WHERE log = {_literal(entry.of)}"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_ABOUT = {
    "lake": "A table of the lake.",
    "log": "The log {}, with a column for each property of its schema.",
    "table": "The rows of all parents of the table {}.",
    "view": "The log {}, which has no schema.",
    "declared": "The table {}, which a project declares.",
}


def _commented(lake: Lake, entry: CatalogEntry) -> str:
    # As JSON, a name is one line, whatever is in it.
    about = _ABOUT[entry.kind].format(msgspec.json.encode(entry.of).decode())
    return f"-- {about}\n{statement(lake, entry)};\n"


# --- files -----------------------------------------------------------------------------------------------------------


def read_catalog(lake: Lake) -> Catalog:
    """Return the catalog; empty if there is none, or an invalid one, which the next round replaces."""
    stored = lake.read(DATA)
    try:
        return Catalog() if stored is None else msgspec.json.decode(stored, type=Catalog)
    except msgspec.DecodeError:
        return Catalog()


def write_catalog(lake: Lake, catalog: Catalog, before: Catalog) -> None:
    """Write what differs from the catalog before."""
    known = {_file(entry): entry for entry in before.entries if entry.kind != "view"}
    tables = {_file(entry): entry for entry in catalog.entries if entry.kind != "view"}
    for name, entry in tables.items():
        if known.get(name) != entry:
            lake.write(name, _commented(lake, entry).encode())
    views = [entry for entry in catalog.entries if entry.kind == "view"]
    if views != [entry for entry in before.entries if entry.kind == "view"]:
        more = f"-- {catalog.more_logs} more logs have no view.\n" if catalog.more_logs else ""
        lake.write(VIEWS, "\n".join([*(_commented(lake, entry) for entry in views), more]).encode())
    lake.write(DATA, msgspec.json.encode(catalog))
    lake.remove(name for name in known if name not in tables)


def _file(entry: CatalogEntry) -> str:
    return f"{FOLDER}/{entry.name}.sql"
