"""Tokens of many texts at once. They are those of :func:`strandline.query.values.tokens`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.query.columns import encode_words
from strandline.query.values import tokens

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
