"""Documents with a realistic vocabulary: words by Zipf's law, and fields of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

VOCABULARY = 50_000
#: The number of words of a text: at least 8, and about 20 on average.
LEAST_WORDS, MORE_WORDS = 8, 12
SERVICES = 20
USERS = 100_000
FIRST = 1_780_000_000_000
#: Milliseconds from one document to the next.
STEP = 250
BATCH = 16_384

_ONSETS = ("b", "br", "c", "ch", "d", "f", "g", "gr", "h", "k", "l", "m", "n", "p", "pr", "r", "s", "st", "t", "v")
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "ou")
_ENDS = ("", "n", "r", "s", "t", "l", "nd", "ck")


def vocabulary() -> list[str]:
    """Distinct words, the most frequent first. Frequent words are shorter, as in natural languages."""
    rng = np.random.default_rng(5)
    words: dict[str, None] = {}
    while len(words) < VOCABULARY:
        syllables = 1 + (len(words) > 300) + (len(words) > 8_000 and rng.random() < 0.6)
        picks = rng.integers(0, 1 << 30, 3 * syllables).tolist()
        parts = (
            _ONSETS[picks[at] % len(_ONSETS)]
            + _VOWELS[picks[at + 1] % len(_VOWELS)]
            + _ENDS[picks[at + 2] % len(_ENDS)]
            for at in range(0, len(picks), 3)
        )
        words["".join(parts)] = None
    return list(words)


class Zipf:
    """Draws ranks of words: the chance of the word with rank ``n``, from 1, is proportional to ``1 / n``."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._chances = np.cumsum(1 / np.arange(1, VOCABULARY + 1))
        self._chances /= self._chances[-1]

    def ranks(self, count: int) -> Any:
        return np.searchsorted(self._chances, self._rng.random(count)).astype(np.int32)


def documents(count: int) -> Iterator[list[bytes]]:
    """Batches of JSON documents, the same for every caller."""
    words, zipf, rng = pa.array(vocabulary()), Zipf(count), np.random.default_rng(count)
    for first in range(0, count, BATCH):
        yield _batch(first, min(BATCH, count - first), words, zipf, rng)


def _batch(first: int, count: int, words: Any, zipf: Zipf, rng: np.random.Generator) -> list[bytes]:
    lengths = LEAST_WORDS + rng.poisson(MORE_WORDS, count)
    bounds = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(bounds), words.take(pa.array(zipf.ranks(int(bounds[-1])))))
    texts = {
        '{"at":"': _times(first, count),
        '","service":"service-': rng.integers(0, SERVICES, count),
        '","user":"user-': rng.integers(0, USERS, count),
        '","status":': rng.choice((200, 200, 200, 201, 404, 500, 503), count),
        ',"latency":': np.round(rng.exponential(20, count) + 0.01, 2),
        ',"note":"': pc.binary_join(lists, " "),
    }
    parts: list[Any] = []
    for label, values in texts.items():
        parts += [label, pa.array(values).cast(pa.string())]
    joined = pc.binary_join_element_wise(*parts, '"}', "")
    found: list[bytes] = joined.cast(pa.binary()).to_pylist()
    return found


def _times(first: int, count: int) -> Any:
    moments = pa.array(FIRST + np.arange(first, first + count) * STEP).cast(pa.timestamp("ms"))
    return pc.strftime(moments, format="%Y-%m-%dT%H:%M:%SZ")
