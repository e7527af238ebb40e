"""What becomes of a row: which of its columns are what of a record."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from strandline.query.errors import BadPointer
from strandline.query.pointers import parse_pointer

Format = Literal["parquet", "jsonl", "csv"]
CsvType = Literal["string", "long", "double", "boolean", "json"]
CSV_TYPES: tuple[CsvType, ...] = get_args(CsvType)


class BadShape(ValueError):
    """What was asked for makes no sense. The message says why."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Columns are the fields of the objects in JSON lines. Without a ``data_column`` the whole row is the payload, as a
    JSON object without nulls, or as the line that it was. ``exported``: the files were written by an export, which says
    all by itself. ``log`` is where rows go that have no ``log_column``."""

    format: Format
    log: str = ""
    exported: bool = False
    log_column: str | None = None
    key_column: str | None = None
    #: A JSON pointer into the payload.
    key_path: str | None = None
    node_column: str | None = None
    meta_column: str | None = None
    ts_column: str | None = None
    data_column: str | None = None
    keep_ts: bool = False
    delimiter: str = ","
    #: Columns of CSV that are something else than text.
    types: dict[str, CsvType] = {}
    #: Logs that take payloads which are no JSON.
    not_json: list[str] = []

    def check(self) -> None:
        """Raises BadShape."""
        if not self.log and self.log_column is None and not self.exported:
            raise BadShape("say with --log where the records go, or with --log-column which column says so")
        if self.key_column is not None and self.key_path is not None:
            raise BadShape("give one of --key-column and --key-path")
        if self.exported and self.columns:
            raise BadShape("what was exported says by itself which column is what: give no columns with --exported")
        if self.keep_ts and not self.exported:
            raise BadShape("--keep-ts is for what was exported; else say with --ts-column which column is the time")
        if self.log and self.log_column is not None:
            raise BadShape("give one of --log and --log-column")
        if self.format != "csv" and (self.types or self.delimiter != ","):
            raise BadShape("--type and --delimiter are for CSV")
        if len(self.delimiter) != 1 or not self.delimiter.isascii():
            raise BadShape(f"a delimiter is one character, which {self.delimiter!r} is not")
        if self.key_path is not None:
            try:
                parse_pointer(self.key_path)
            except BadPointer as error:
                raise BadShape(str(error)) from None

    @property
    def columns(self) -> list[str]:
        """The columns that are something of the record."""
        named = (self.log_column, self.key_column, self.node_column, self.meta_column, self.ts_column, self.data_column)
        return [name for name in named if name is not None]

    @property
    def has_times(self) -> bool:
        return self.ts_column is not None or self.keep_ts
