"""Read values from many JSON payloads at once, and the tokens of many texts at once.

DuckDB reads the payloads: several times faster than Python, and without holding the interpreter's lock. A row that
DuckDB might read differently from :mod:`strandline.query.values` is left to that module. The tokens are those of
:func:`strandline.query.values.tokens`.
"""

from __future__ import annotations

import atexit
import re
from collections.abc import Sequence
from operator import itemgetter
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from strandline.arrow import pa, pc
from strandline.query.columns import Mask, encode_words
from strandline.query.pointers import parse_pointer
from strandline.query.values import tokens

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Segments of pointers that DuckDB interprets as RFC 6901 does, and that can be written in a payload in few ways.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\Z")


_opening = Lock()
_opened: list[DuckDBPyConnection] = []


def database() -> DuckDBPyConnection:
    """An in-memory database without access to files or networks. All threads share it, each with its own cursor.

    The first call imports and starts DuckDB. Only work in bulk needs it.
    """
    with _opening:
        if not _opened:
            import duckdb

            settings: dict[str, Any] = {
                "enable_external_access": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "python_enable_replacements": False,
            }
            _opened.append(duckdb.connect(":memory:", config=settings))
            # The interpreter does not always free a module's objects at its end, and DuckDB then reports leaks.
            atexit.register(_opened.clear)
        return _opened[0]


def prepare() -> None:
    """Start DuckDB, so that later calls need not wait for it."""
    if not _opened:
        Payloads([b'{"a":1}'], ["/a"], database())


class UnreadablePayload(Exception):
    """One of many payloads is not JSON."""


class Payloads:
    """JSON objects, and the values found in them.

    ``fallible`` are rows that only Python reads correctly: a key may occur twice (DuckDB uses the first, Python the
    last), or may be written with escapes. No values are returned for them.
    """

    def __init__(self, data: Sequence[bytes], pointers: Sequence[str], database: DuckDBPyConnection) -> None:
        """Raises UnreadablePayload or pa.ArrowInvalid if one of the payloads is not JSON."""
        joined = b"".join(data)
        self._texts = _texts_of(data, joined)
        self._pointers = [pointer for pointer in dict.fromkeys(pointers) if is_plain(pointer)]
        found = self._extract(database)
        self.fallible = self._find_fallible(found, joined)
        if self.fallible.any():
            kept = pa.array(~self.fallible)
            nothing = pa.scalar(None, pa.string())
            found = {pointer: pc.if_else(kept, values, nothing) for pointer, values in found.items()}
        #: Per pointer, an Arrow array of the JSON found there, null where there is none. Pointers that DuckDB cannot
        #: read are omitted.
        self.values = found

    def _extract(self, database: DuckDBPyConnection) -> dict[str, Any]:
        from duckdb import Error

        if not self._pointers:
            return {}
        paths = ", ".join(f"'{pointer}'" for pointer in self._pointers)
        names = ", ".join(f"found[{at}] AS value{at}" for at in range(1, len(self._pointers) + 1))
        query = f"SELECT {names} FROM (SELECT json_extract(data, [{paths}]) AS found FROM payloads)"
        with database.cursor() as cursor:
            cursor.register("payloads", pa.table({"data": self._texts}))
            try:
                table = cursor.sql(query).to_arrow_table()
            except Error as error:
                raise UnreadablePayload from error
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
                # A row with a value has the key at least once, so if there are no more occurrences than such rows, none
                # has it twice. This is nearly always the case, and fast to check.
                if joined.count(key.encode()) > len(values) - values.null_count:
                    fallible |= _marks(pc.greater(pc.count_substring(self._texts, key), 1))
        return fallible


def is_plain(pointer: str) -> bool:
    """Return whether DuckDB can read this pointer."""
    segments = parse_pointer(pointer)
    return bool(segments) and all(_PLAIN.match(segment) for segment in segments)


def object_rows(data: Sequence[bytes]) -> list[int]:
    """Return the payloads that start like an object. Valid JSON that starts so is an object."""
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
    """Return the column as plain strings, without DuckDB's own type."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column.cast(pa.string()) if column.type != pa.string() else column


#: The ASCII bytes that words consist of, and those that separate words.
_LETTERS = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_OTHERS = bytes(code for code in range(256) if code not in _LETTERS)
_LOWER = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"abcdefghijklmnopqrstuvwxyz")
#: Maps the former to 1 and the latter to 0.
_INSIDE = bytes(code in _LETTERS for code in range(256))

Tokenised = tuple[npt.NDArray[np.int32], Any, npt.NDArray[np.int64]]


def tokenise(texts: Any) -> Tokenised:
    """Tokenise an Arrow array of strings without nulls. Return all tokens as codes, their words, and the bounds of the
    tokens of each text."""
    if len(texts) and pc.all(pc.string_is_ascii(texts)).as_py():
        strings, bounds = _split_ascii(texts)
    else:
        strings, bounds = _split(texts)
    codes, words = encode_words(strings)
    return codes, words, bounds


def tokenise_each(texts: Sequence[str]) -> Tokenised:
    """Like ``tokenise``, for a few texts."""
    split = [tokens(text) for text in texts]
    codes, words = encode_words(pa.array([token for each in split for token in each], pa.string()))
    return codes, words, np.cumsum([0, *map(len, split)], dtype=np.int64)


def _split(texts: Any) -> tuple[Any, npt.NDArray[np.int64]]:
    """Split ASCII texts in bulk. Python splits the others, because it defines letters and lower case."""
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
    # The position of each token of the result among the tokens split so far.
    places = np.repeat(starts - bounds[:-1], counts) + np.arange(bounds[-1])
    return strings.take(pa.array(places)), bounds


def _split_ascii(texts: Any) -> tuple[Any, npt.NDArray[np.int64]]:
    if not len(texts):
        return pa.array([], pa.string()), np.zeros(1, np.int64)
    offsets, raw = text_buffers(texts)
    content = raw.tobytes()
    inside = np.frombuffer(content.translate(_INSIDE), np.bool_)
    # A token starts with a letter after a separator and ends with a letter before one. No token spans two texts.
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
    """Return the offsets and the bytes of an Arrow array of strings, both starting with the array's first element."""
    _, offset_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    raw = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    return offsets - offsets[0], raw[offsets[0] : offsets[-1]]
