"""Tables and collections as tables of DuckDB: the rows of all parents, and the elements of all documents.

The fields of the payloads become columns. Their types come from the values, because the command line does not know the
declarations. A field with values of several types, or with objects, is a column of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import duckdb

from strandline.query.pointers import pointer_to
from strandline.sql.statement import quoted
from strandline.tables.names import STAMPS, UPDATED_AT

#: Payloads with more fields than this have no columns for them: the names are probably data.
MAX_FIELDS = 500

#: The types of DuckDB's JSON structures that become columns of another type.
_TYPES = {"VARCHAR": "varchar", "BOOLEAN": "boolean", "DOUBLE": "double", "BIGINT": "bigint", "UBIGINT": "bigint"}
#: Removes the members that the record of an edited row has beside the fields of its payload.
_WITHOUT_STAMPS = json.dumps(dict.fromkeys(STAMPS))


def rows_view(database: duckdb.DuckDBPyConnection, records: str) -> str:
    """A statement that selects the rows of a table. ``records`` selects the records of the logs of its rows."""
    parent = "substr(log, strpos(log, '/') + 1)"
    edited = f"try_cast(data ->> '/{UPDATED_AT}' as bigint)"
    columns = {
        "id": f"{parent} || ':' || seq",
        "parent": parent,
        "seq": "seq",
        "userId": "try(decode(meta))::json ->> '/user'",
        "createdAt": "ts",
        "updatedAt": f"coalesce(to_timestamp({edited} / 1000.0), ts)",
        "idempotencyKey": "key",
    }
    payload = f"case when {edited} is null then data else json_merge_patch(data, '{_WITHOUT_STAMPS}') end"
    return _with_fields(database, records, columns, {"payload": payload})


def elements_view(database: duckdb.DuckDBPyConnection, records: str) -> str:
    """A statement that selects the elements of a collection. ``records`` selects the records of its documents."""
    columns = {
        "document": "log",
        "seq": "seq",
        "ts": "ts",
        "authorPubkey": "try(decode(meta))::json ->> '/authorPubkey'",
        "authorSignature": "try(decode(meta))::json ->> '/authorSignature'",
    }
    return _with_fields(database, records, columns, {"data": "data"})


def _with_fields(
    database: duckdb.DuckDBPyConnection, records: str, columns: Mapping[str, str], whole: Mapping[str, str]
) -> str:
    """Add columns for the fields of the data, and the data as a whole."""
    parsed = f"select * replace (data::json as data) from ({records})"
    fields = dict(_fields(database, parsed, {*columns, *whole}))
    selected = ", ".join(f"{text} as {quoted(name)}" for name, text in {**columns, **fields, **whole}.items())
    return f"select {selected} from ({parsed})"


def _fields(database: duckdb.DuckDBPyConnection, records: str, taken: set[str]) -> Iterator[tuple[str, str]]:
    """The fields with the expressions that select them. DuckDB ignores case in names, so of two fields that differ only
    in case, and of a field with the name of another column, the column is the first one; the data has both."""
    found = database.sql(f"select json_group_structure(data) from ({records})").fetchall()
    structure = json.loads(found[0][0] or "null")
    if not isinstance(structure, dict) or len(structure) > MAX_FIELDS:
        return
    seen = {name.lower() for name in taken}
    for name, kind in structure.items():
        if name.lower() in seen or name.startswith("$"):
            continue
        seen.add(name.lower())
        pointer = "'" + pointer_to((name,)).replace("'", "''") + "'"
        type = _TYPES.get(kind) if isinstance(kind, str) else None
        yield name, f"data -> {pointer}" if type is None else f"cast(data ->> {pointer} as {type})"
