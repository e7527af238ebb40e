"""Words sorted by code point, which is also the order of their UTF-8 bytes. Words are found by bisection."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any


class SortedWords:
    """The words of an Arrow array of strings without nulls, which ascend and are distinct. Bisects over the buffers of
    the array, because creating an Arrow scalar takes several times as long as the comparison."""

    __slots__ = ("_content", "_ends", "_places")

    def __init__(self, words: Any) -> None:
        _, offsets, content = words.buffers()
        self._places = range(len(words))
        self._ends = memoryview(b"" if offsets is None else offsets).cast("i")[words.offset :]
        self._content = memoryview(b"" if content is None else content)

    def _word(self, place: int) -> bytes:
        return self._content[self._ends[place] : self._ends[place + 1]].tobytes()

    def place(self, word: str) -> tuple[int, int]:
        """Return the start and the end of the range with this word, which is empty if there is no such word."""
        wanted = word.encode(errors="surrogatepass")
        low = bisect_left(self._places, wanted, key=self._word)
        return low, low + (low < len(self._places) and self._word(low) == wanted)

    def starting(self, prefix: str) -> tuple[int, int]:
        """Return the start and the end of the words that start with the prefix."""
        wanted = prefix.encode(errors="surrogatepass")
        low, length = bisect_left(self._places, wanted, key=self._word), len(wanted)
        return low, bisect_left(self._places, True, lo=low, key=lambda place: self._word(place)[:length] != wanted)
