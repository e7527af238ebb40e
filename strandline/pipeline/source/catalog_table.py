"""The options of tables in a Spark catalog: ``CREATE TABLE … USING strandline OPTIONS (…)``.

Spark passes the options of such a table to a Python data source only when the table is created, to infer its schema. A
query gets the schema from the catalog and no options. So the inferred schema carries the options, as metadata of its
columns, which the catalog keeps and which Spark passes on for reads and inserts.

The schema of a DataFrame is copied into files that are made of it, so it never contains credentials.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from strandline.pipeline.source.option_values import COLD_PREFIX, BadOption

#: The member of the metadata of columns.
METADATA = "strandline.options"
#: Spark gives the rows of an insert the metadata of the table's columns only if it has to adapt them. It does not adapt
#: rows that have the same names and types already, so strings of a table are VARCHARs of any length: Spark compares
#: that type, and nothing else changes.
_VARCHAR, _ANY_LENGTH = "__CHAR_VARCHAR_TYPE_STRING", "varchar(2147483647)"
#: Spark passes each option of OPTIONS under its name and with this prefix, next to properties of the table.
_OPTION = "option."
#: The API key for tables in a catalog, as for the command line.
KEY_VARIABLE = "STRANDLINE_KEY"


def is_created(options: Mapping[str, str]) -> bool:
    """Whether Spark infers the schema for CREATE TABLE."""
    return "provider" in options and ("owner" in options or any(name.startswith(_OPTION) for name in options))


def declared(options: Mapping[str, str]) -> dict[str, str]:
    """The options of CREATE TABLE, without properties of the table. Raises BadOption for credentials."""
    found = {name[len(_OPTION) :].lower(): value for name, value in options.items() if name.startswith(_OPTION)}
    location = options.get("path") or options.get("location")
    if location is not None:
        found["path"] = _local(location)
    for name in found:
        if name == "key" or name.startswith(COLD_PREFIX):
            raise BadOption(
                f"option {name!r} cannot be stored in a catalog, which shows it to everyone: "
                + (f"set {KEY_VARIABLE} in the environment of the driver" if name == "key" else "use a temporary view")
                + f", or give it to each query: SELECT … FROM table WITH (`{name}` '…')"
            )
    return found


def carrying(schema: Any, options: Mapping[str, str]) -> Any:
    """The schema with the options in the metadata of its columns."""
    from pyspark.sql.types import StringType, StructField, StructType

    text = msgspec.json.encode(dict(options), order="sorted").decode()
    fields = []
    for field in schema.fields:
        metadata = {METADATA: text}
        if isinstance(field.dataType, StringType):
            metadata[_VARCHAR] = _ANY_LENGTH
        fields.append(StructField(field.name, field.dataType, field.nullable, metadata))
    return StructType(fields)


def completed(given: Mapping[str, str], schema: Any) -> dict[str, str]:
    """The options of a query: the given ones, and those of its table. Raises BadOption if there are none."""
    named = {name.lower(): value for name, value in given.items()}
    if named.keys() & {"url", "path", "lake"}:
        return dict(given)
    stored = next((field.metadata[METADATA] for field in schema.fields if METADATA in field.metadata), None)
    if stored is None:
        raise BadOption(
            "give either url (of a server) or path (of a data directory). Spark does not pass on the options of a "
            "table in a catalog: create it with CREATE TABLE … USING strandline OPTIONS (…) without a list of columns "
            "and without AS SELECT; the option columns chooses columns. For a stream into a table, use "
            'writeStream.format("strandline") with options'
        )
    options = msgspec.json.decode(stored, type=dict[str, str]) | named
    if "url" in options and "key" not in options and os.environ.get(KEY_VARIABLE):
        options["key"] = os.environ[KEY_VARIABLE]
    return options


def _local(location: str) -> str:
    """A path, which Spark turns into a URI of the file system."""
    return location.removeprefix("file://") if location.startswith("file:///") else location.removeprefix("file:")
