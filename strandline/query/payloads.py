"""Values out of many JSON payloads at once, as the JSON they are written in.

DuckDB reads the payloads, several times as fast as Python would and without holding the interpreter's lock. Where it
could read a payload differently than :mod:`strandline.query.values` does, the row is left to that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from operator import itemgetter
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.query.columns import Mask
from strandline.query.pointers import parse_pointer

#: Segments of pointers that DuckDB takes as RFC 6901 does, and that can stand in a payload in few ways.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")


@cache
def database() -> duckdb.DuckDBPyConnection:
    """A database in memory, which touches neither files nor networks; for all threads, each with its own cursor."""
    settings: dict[str, Any] = {
        "enable_external_access": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
    }
    return duckdb.connect(":memory:", config=settings)


class Payloads:
    """JSON objects, and what is found in them.

    ``fallible`` are rows that only Python reads rightly: where a key may stand twice (for DuckDB the first counts, for
    Python the last), and where it may be written with escapes. In them nothing is found.
    """

    def __init__(self, data: Sequence[bytes], pointers: Sequence[str], database: duckdb.DuckDBPyConnection) -> None:
        """Raises duckdb.Error or pa.ArrowInvalid if one of the payloads is no JSON."""
        joined = b"".join(data)
        self._texts = _texts_of(data, joined)
        self._pointers = [pointer for pointer in dict.fromkeys(pointers) if is_plain(pointer)]
        found = self._extract(database)
        self.fallible = self._find_fallible(found, joined)
        if self.fallible.any():
            kept = pa.array(~self.fallible)
            nothing = pa.scalar(None, pa.string())
            found = {pointer: pc.if_else(kept, values, nothing) for pointer, values in found.items()}
        #: Per pointer an Arrow array of the JSON found there, null where there is nothing. Pointers are left out that
        #: DuckDB cannot be asked for.
        self.values = found

    def _extract(self, database: duckdb.DuckDBPyConnection) -> dict[str, Any]:
        if not self._pointers:
            return {}
        paths = ", ".join(f"'{pointer}'" for pointer in self._pointers)
        names = ", ".join(f"found[{at}] AS value{at}" for at in range(1, len(self._pointers) + 1))
        query = f"SELECT {names} FROM (SELECT json_extract(data, [{paths}]) AS found FROM payloads)"
        with database.cursor() as cursor:
            cursor.register("payloads", pa.table({"data": self._texts}))
            table = cursor.sql(query).to_arrow_table()
            cursor.unregister("payloads")
        columns = [column.combine_chunks() for column in table.columns]
        return dict(zip(self._pointers, map(_plain_strings, columns), strict=True))

    def _find_fallible(self, found: dict[str, Any], joined: bytes) -> Mask:
        fallible = np.zeros(len(self._texts), np.bool_)
        if b"\\u" in joined:
            fallible |= _marks(pc.match_substring(self._texts, "\\u"))
        for pointer, values in found.items():
            for segment in parse_pointer(pointer):
                key = f'"{segment}"'
                # A row in which something was found has the key at least once, so if there are no more, none has it
                # twice. That is nearly always so, and much quicker to see.
                if joined.count(key.encode()) > len(values) - values.null_count:
                    fallible |= _marks(pc.greater(pc.count_substring(self._texts, key), 1))
        return fallible


def is_plain(pointer: str) -> bool:
    """Whether DuckDB may be asked for it."""
    segments = parse_pointer(pointer)
    return bool(segments) and all(_PLAIN.match(segment) for segment in segments)


def object_rows(data: Sequence[bytes]) -> list[int]:
    """The payloads that begin as an object does. JSON that begins so is one."""
    if all(data) and set(map(_first_byte, data)) == {ord("{")}:
        return list(range(len(data)))
    return [row for row, payload in enumerate(data) if payload.lstrip(b" \t\r\n").startswith(b"{")]


_first_byte = itemgetter(0)


def _marks(column: Any) -> Mask:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.bool_)


def _texts_of(data: Sequence[bytes], joined: bytes) -> Any:
    offsets: npt.NDArray[np.int64] = np.zeros(len(data) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, data), np.int64, len(data)), out=offsets[1:])
    texts = pa.LargeStringArray.from_buffers(len(data), pa.py_buffer(offsets), pa.py_buffer(joined))
    texts.validate(full=True)
    return texts


def _plain_strings(column: Any) -> Any:
    """Without whatever DuckDB says about its type beyond that it is text."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column.cast(pa.string()) if column.type != pa.string() else column
