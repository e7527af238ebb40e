"""Reading values from many JSON payloads at once, and the tokens of many texts at once.

DuckDB reads the payloads: several times faster than Python, and without holding the interpreter's lock. A row that
DuckDB might read differently from :mod:`strandline.query.values` is left to that module. The tokens are those of
:func:`strandline.query.values.tokens`.
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

from strandline.query.columns import Mask, encode_words
from strandline.query.pointers import parse_pointer
from strandline.query.values import tokens

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


#: The bytes of ASCII text that words are made of, and those that part them.
_LETTERS = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_OTHERS = bytes(code for code in range(256) if code not in _LETTERS)
_LOWER = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"abcdefghijklmnopqrstuvwxyz")
#: Makes 1 of the former and 0 of the latter.
_INSIDE = bytes(code in _LETTERS for code in range(256))

Tokenised = tuple[npt.NDArray[np.int32], Any, npt.NDArray[np.int64]]


def tokenise(texts: Any) -> Tokenised:
    """Of an Arrow array of strings without nulls: all tokens as codes, the words they stand for, and where the tokens
    of each text begin and the last end."""
    if len(texts) and pc.all(pc.string_is_ascii(texts)).as_py():
        strings, bounds = _split_ascii(texts)
    else:
        strings, bounds = _split(texts)
    codes, words = encode_words(strings)
    return codes, words, bounds


def tokenise_each(texts: Sequence[str]) -> Tokenised:
    """The same, of a few texts."""
    split = [tokens(text) for text in texts]
    codes, words = encode_words(pa.array([token for each in split for token in each], pa.string()))
    return codes, words, np.cumsum([0, *map(len, split)], dtype=np.int64)


def _split(texts: Any) -> tuple[Any, npt.NDArray[np.int64]]:
    """Texts that are ASCII as a whole, the others by Python, whose idea of letters and of lower case it is."""
    ascii = pc.string_is_ascii(texts).to_numpy(zero_copy_only=False)
    plain_strings, plain_bounds = _split_ascii(texts.filter(pa.array(ascii)))
    others = [tokens(text) for text in texts.filter(pa.array(~ascii)).to_pylist()]
    strings = pa.concat_arrays([plain_strings, pa.array([token for each in others for token in each], pa.string())])
    counts = np.empty(len(texts), np.int64)
    starts = np.empty(len(texts), np.int64)
    counts[ascii] = np.diff(plain_bounds)
    starts[ascii] = plain_bounds[:-1]
    counts[~ascii] = [len(each) for each in others]
    starts[~ascii] = len(plain_strings) + np.cumsum([0, *map(len, others[:-1])])[: len(others)]
    bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    # Where each token of the result is among those split so far.
    places = np.repeat(starts - bounds[:-1], counts) + np.arange(bounds[-1])
    return strings.take(pa.array(places)), bounds


def _split_ascii(texts: Any) -> tuple[Any, npt.NDArray[np.int64]]:
    if not len(texts):
        return pa.array([], pa.string()), np.zeros(1, np.int64)
    offsets, raw = text_buffers(texts)
    content = raw.tobytes()
    inside = np.frombuffer(content.translate(_INSIDE), np.bool_)
    # A token goes from a letter behind something else to one before something else; no token goes from text to text.
    begins, ends = inside.copy(), inside.copy()
    begins[1:] &= ~inside[:-1]
    ends[:-1] &= ~inside[1:]
    first = offsets[:-1][offsets[:-1] < offsets[1:]]
    last = offsets[1:][offsets[:-1] < offsets[1:]] - 1
    begins[first] = inside[first]
    ends[last] = inside[last]
    starts = np.flatnonzero(begins)
    token_offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(np.flatnonzero(ends) - starts + 1, out=token_offsets[1:])
    kept = content.translate(_LOWER, _OTHERS)
    strings = pa.StringArray.from_buffers(len(starts), pa.py_buffer(token_offsets), pa.py_buffer(kept))
    return strings, np.searchsorted(starts, offsets).astype(np.int64)


def text_buffers(texts: Any) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """The offsets and the bytes of an Arrow array of strings, both beginning with the array's own first."""
    _, offset_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    raw = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    return offsets - offsets[0], raw[offsets[0] : offsets[-1]]
