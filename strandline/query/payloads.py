"""Read values from many JSON payloads at once, and the tokens of many texts at once.

msgspec reads the payloads: it decodes the members that pointers name to their JSON text, and skips all others. Values
that cannot be read so are left to :mod:`strandline.query.values`. The tokens are those of
:func:`strandline.query.values.tokens`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from strandline.arrow import pa, pc
from strandline.query.columns import encode_words
from strandline.query.pointers import ARRAY_INDEX, parse_pointer
from strandline.query.values import tokens

#: The number of cached decoders: one per object whose members are read, in the search configurations in use.
KEPT_DECODERS = 1024
#: A number with more digits, or with an exponent of more digits, may be too large for a float or an integer.
_LONG_RUN = 128
_LONG_EXPONENT = 3

Path = tuple[str, ...]


class UnreadablePayload(Exception):
    """One of many payloads is not JSON."""


class Payloads:
    """The values at pointers in JSON objects."""

    def __init__(self, data: Sequence[bytes], pointers: Iterable[str]) -> None:
        """Raises UnreadablePayload or pa.ArrowInvalid if one of the payloads is not a JSON object."""
        joined = b"".join(data)
        _check_texts(data, joined)
        #: Per pointer, an Arrow array of the JSON found there, null where there is none. Pointers that may lead into
        #: arrays are omitted.
        self.values: dict[str, Any] = {}
        paths = {pointer: parse_pointer(pointer) for pointer in pointers}
        paths = {pointer: path for pointer, path in paths.items() if path and not any(map(ARRAY_INDEX.match, path))}
        try:
            found = _members(data, set(paths.values()))
            if _has_long_number(joined):
                # The decoders skip over numbers that Python cannot read.
                for payload in data:
                    decode(payload)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise UnreadablePayload from error
        for pointer, path in paths.items():
            self.values[pointer] = _texts_of(found[path])


decode = msgspec.json.Decoder().decode

_NOTHING = msgspec.Raw()
_Texts = Sequence["bytes | msgspec.Raw"]


def _members(objects: _Texts, paths: set[Path]) -> dict[Path, _Texts]:
    """The JSON texts at these paths in each of the objects; empty where there is nothing."""
    found: dict[Path, _Texts] = {}
    reader = _reader(tuple(sorted({path[0] for path in paths})))
    read = [reader.decode(each) for each in objects]
    for name, column in reader.columns.items():
        texts: _Texts = list(map(column, read))
        deeper = {path[1:] for path in paths if path[0] == name}
        if () in deeper:
            found[(name,)] = texts
            deeper.remove(())
        if deeper:
            inner: _Texts = [text if bytes(memoryview(text)[:1]) == b"{" else b"{}" for text in texts]
            found |= {(name, *path): each for path, each in _members(inner, deeper).items()}
    return found


class _MemberReader(NamedTuple):
    """Decodes an object to a struct with the texts of some members; ``columns`` has the function that returns each."""

    decode: Callable[[Any], Any]
    columns: dict[str, Callable[[Any], Any]]


@lru_cache(KEPT_DECODERS)
def _reader(names: Path) -> _MemberReader:
    attributes = {f"member{at}": name for at, name in enumerate(names)}
    fields = [(attribute, msgspec.Raw, _NOTHING) for attribute in attributes]
    kind = msgspec.defstruct("Members", fields, rename=attributes, gc=False)
    return _MemberReader(
        msgspec.json.Decoder(kind).decode, {name: attrgetter(attribute) for attribute, name in attributes.items()}
    )


def _has_long_number(joined: bytes) -> bool:
    """Whether there may be a number with very many digits or a large exponent. Texts may look like one."""
    if not joined:
        return False
    raw = np.frombuffer(joined, np.uint8)
    exponents = np.flatnonzero((raw | 32) == ord("e"))
    exponents = exponents[exponents + _LONG_EXPONENT + 1 < len(raw)]
    exponents = exponents + 1 + (raw[exponents + 1] == ord("+"))
    for at in range(_LONG_EXPONENT):
        exponents = exponents[raw[exponents] - np.uint8(48) < 10] + (at < _LONG_EXPONENT - 1)
    if len(exponents):
        return True
    samples = raw[::_LONG_RUN] - np.uint8(48) < 10
    places = np.flatnonzero(samples[1:] & samples[:-1]) * _LONG_RUN
    return any(joined[place : place + _LONG_RUN].isdigit() for place in places.tolist())


def object_rows(data: Sequence[bytes]) -> list[int]:
    """Return the payloads that start like an object. Valid JSON that starts so is an object."""
    if all(data) and set(map(_first_byte, data)) == {ord("{")}:
        return list(range(len(data)))
    return [row for row, payload in enumerate(data) if payload.lstrip(b" \t\r\n").startswith(b"{")]


_first_byte = itemgetter(0)


def _bounds_of(texts: Iterable[Any], count: int) -> npt.NDArray[np.int64]:
    bounds: npt.NDArray[np.int64] = np.zeros(count + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, count), out=bounds[1:])
    return bounds


def _check_texts(data: Sequence[bytes], joined: bytes) -> None:
    """Raises pa.ArrowInvalid if one is not UTF-8."""
    offsets = pa.py_buffer(_bounds_of(data, len(data)))
    pa.LargeStringArray.from_buffers(len(data), offsets, pa.py_buffer(joined)).validate(full=True)


def _texts_of(found: _Texts) -> Any:
    """The texts as an Arrow array of strings, null where they are empty."""
    bounds = _bounds_of(found, len(found))
    if bounds[-1] > np.iinfo(np.int32).max:
        raise pa.ArrowInvalid("the values have more than 2 GiB")
    is_found = np.diff(bounds) > 0
    nulls = len(found) - int(np.count_nonzero(is_found))
    validity = pa.py_buffer(np.packbits(is_found, bitorder="little")) if nulls else None
    return pa.StringArray.from_buffers(
        len(found), pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(b"".join(found)), validity, nulls
    )


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
