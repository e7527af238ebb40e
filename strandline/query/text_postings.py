"""Texts as postings: for each word, the values that contain it, how often, and where.

The values are numbered within pages of 65,536, so that a number takes 16 bits. A word's values in one page are a run: a
list of numbers or, from 4,096 values on, a bitmap of the whole page, which takes as much space as 4,096 numbers. Counts
are stored only where a word occurs more than once in a value. Positions are stored only for fields that need them.

All arrays are read in place. What a query decodes is as large as the values of a file, or as the tokens of those values
for a phrase.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from strandline.query.columns import Rows, TextColumn, TokenColumn
from strandline.query.occurrences import NOWHERE, Occurrences, counts_among, with_all
from strandline.query.postings import narrow, sort_words, starts_of
from strandline.query.selection import Numbers, is_among
from strandline.query.sorted_words import SortedWords

PAGE_BITS = 16
PAGE = 1 << PAGE_BITS
#: The 16-bit numbers that a bitmap of a page takes. Every shorter run is a list.
BITMAP = PAGE // 16
#: If a word is in more than one in this many values, a mask of all values is faster than a list.
_DENSE = 16

#: Returns an array of the column by its name. Arrays are read and verified when they are first used.
Part = Callable[[str], Any]

#: The arrays. Per word: ``runs`` (its first run), ``starts`` (the start of its runs in ``lists``) and ``repeats`` (the
#: start of its repetitions); all have one more element than there are words. Per run: ``pages`` and ``sizes``. Per
#: repetition: ``repeated`` (the value) and ``counts``. Per value: ``lengths`` (its tokens).
PARTS = ("words", "lengths", "runs", "starts", "pages", "sizes", "lists", "repeats", "repeated", "counts")
#: With positions, there are also, per occurrence, ``positions``, and per word ``occurrences``, where these start.
POSITION_PARTS = ("positions", "occurrences")


class PostedTextColumn(TextColumn):
    """A text column whose words are sorted, with postings."""

    __slots__ = ("_known", "_part", "_sorted", "_tokens", "positions")

    def __init__(self, part: Part, rows: Rows | None, positions: bool) -> None:
        words, lengths = part("words"), part("lengths")
        super().__init__(len(lengths), words, rows)
        self.positions = positions
        self._part = part
        self._known: dict[str, Any] = {"words": words, "lengths": lengths}
        self._sorted = SortedWords(self.words)
        self._tokens: int | None = None

    def array(self, name: str) -> Any:
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._part(name)
        return found

    @property
    def nbytes(self) -> int:
        names = [*PARTS, *(POSITION_PARTS if self.positions else ())]
        return super().nbytes + sum(int(self.array(name).nbytes) for name in names)

    def lengths(self, values: Numbers) -> Numbers:
        return np.asarray(self.array("lengths")[values])

    def tokens_before(self, values: int) -> int:
        if values < self.count:
            return int(self.array("lengths")[:values].sum(dtype=np.int64))
        if self._tokens is None:
            self._tokens = int(self.array("lengths").sum(dtype=np.int64))
        return self._tokens

    def shortest(self, length: int) -> Numbers:
        return np.flatnonzero(self.array("lengths") <= length)

    def occurrences(self, token: str, prefix: bool) -> Occurrences:
        return self._between(*self._places(token, prefix))

    def _between(self, low: int, high: int) -> Occurrences:
        """Return the occurrences of the words from ``low`` to before ``high``."""
        if low >= high:
            return Occurrences.nowhere(self.count)
        return WordOccurrences(self, low) if high - low == 1 else self._together(low, high)

    def _places(self, token: str, prefix: bool) -> tuple[int, int]:
        return self._sorted.starting(token) if prefix else self._sorted.place(token)

    def _together(self, low: int, high: int) -> Occurrences:
        """Return the occurrences of several words: every value once, with the sum of its counts."""
        values, _ = self.decode(low, high)
        repeated, counts = self.repetitions(low, high)
        values = np.concatenate((values, np.repeat(repeated, counts.astype(np.int64) - 1)))
        if len(values) * _DENSE > self.count:
            return Occurrences.dense(np.bincount(values, minlength=self.count))
        return Occurrences(self.count, *np.unique(values, return_counts=True))

    def repetitions(self, low: int, high: int) -> tuple[Numbers, Numbers]:
        """Return the values in which the words from ``low`` to before ``high`` occur more than once, and how often;
        word by word."""
        starts = self.array("repeats")
        start, end = int(starts[low]), int(starts[high])
        return self.array("repeated")[start:end], self.array("counts")[start:end]

    def runs(self, low: int, high: int) -> tuple[Numbers, Numbers, int]:
        """Return the pages and sizes of the runs of these words, and where the first run starts."""
        runs = self.array("runs")
        first, last = int(runs[low]), int(runs[high])
        return self.array("pages")[first:last], self.array("sizes")[first:last], int(self.array("starts")[low])

    def decode(self, low: int, high: int) -> tuple[Numbers, Numbers]:
        """Return the values of these words, word by word and ascending, and the number of values in each run."""
        pages, sizes, start = self.runs(low, high)
        lists, bases = self.array("lists"), pages.astype(np.int64) << PAGE_BITS
        bitmaps = np.flatnonzero(sizes == BITMAP).tolist()
        sizes = sizes.astype(np.int64)
        if not bitmaps:
            values = lists[start : start + int(sizes.sum())].astype(np.int64)
            values += bases[0] if len(sizes) == 1 else np.repeat(bases, sizes)
            return values, sizes
        ends = start + np.cumsum(sizes)
        pieces, before = [], 0
        for run in [*bitmaps, len(sizes)]:
            if run > before:
                first = int(ends[before - 1]) if before else start
                plain = lists[first : int(ends[run - 1])].astype(np.int64)
                pieces.append(plain + np.repeat(bases[before:run], sizes[before:run]))
            if run < len(sizes):
                found = np.flatnonzero(_bits(lists, int(ends[run]) - BITMAP)) + bases[run]
                sizes[run] = len(found)
                pieces.append(found)
            before = run + 1
        return np.concatenate(pieces), sizes

    def phrase(self, tokens: tuple[str, ...], prefix: bool, within: Numbers | None) -> tuple[Numbers, Numbers]:
        last = len(tokens) - 1
        ranges = [self._places(token, prefix and at == last) for at, token in enumerate(tokens)]
        if any(low >= high for low, high in ranges):
            return NOWHERE, NOWHERE
        values, counts = with_all([self._between(low, high) for low, high in ranges], within)
        if not len(values):
            return NOWHERE, NOWHERE
        lengths = self.lengths(values).astype(np.int64)
        bases = np.cumsum(lengths) - lengths
        # Mark where the phrase would start, in all tokens of these values, and keep the places that every token marks.
        marks = np.ones(int(lengths.sum()), np.bool_)
        owners = keys = NOWHERE
        for at, (low, high) in enumerate(ranges):
            owners, keys = self._starts(low, high, values, counts[at], bases, at)
            kept = marks[keys]
            owners, keys = owners[kept], keys[kept]
            marks = np.zeros(len(marks), np.bool_)
            marks[keys] = True
        times = np.bincount(owners, minlength=len(values))
        hits = np.flatnonzero(times)
        return values[hits], times[hits]

    def _starts(
        self, low: int, high: int, values: Numbers, counts: Numbers, bases: Numbers, at: int
    ) -> tuple[Numbers, Numbers]:
        """Return where a phrase would start of which one of these words is token ``at``: the indexes of the values, and
        the places in all tokens of these values, the first of which is at ``bases``. The words occur in all of the
        values, ``counts`` times."""
        if high - low == 1:
            owners, firsts, times = np.arange(len(values)), self._firsts(low, values), counts.astype(np.int64)
        else:
            _, listed, times = self._postings(low, high)
            marks = np.zeros(self.count, np.bool_)
            marks[values] = True
            kept = np.flatnonzero(marks[listed])
            owners, firsts, times = np.searchsorted(values, listed[kept]), (np.cumsum(times) - times)[kept], times[kept]
        occurrences = np.repeat(firsts - np.cumsum(times) + times, times) + np.arange(int(times.sum()))
        owners = np.repeat(owners, times)
        positions = self.array("positions")[occurrences + int(self.array("occurrences")[low])]
        fits = positions >= at
        if not fits.all():
            owners, positions = owners[fits], positions[fits]
        return owners, bases[owners] + positions - at

    def _firsts(self, word: int, values: Numbers) -> Numbers:
        """Return where the positions of the word in these values, which all contain it, start among all of its
        positions."""
        firsts = self._ranks(word, values)
        repeated, more = self.repetitions(word, word + 1)
        if len(repeated):
            before = np.zeros(len(more) + 1, np.int64)
            np.cumsum(more.astype(np.int64) - 1, out=before[1:])
            firsts += before[np.searchsorted(repeated, values.astype(repeated.dtype))]
        return firsts

    def _postings(self, low: int, high: int) -> tuple[Numbers, Numbers, Numbers]:
        """Return all words, values and counts of a range of words, ordered by word and value."""
        values, sizes = self.decode(low, high)
        words = np.arange(low, high, dtype=np.int64)
        codes = np.repeat(np.repeat(words, np.diff(self.array("runs")[low : high + 1])), sizes)
        times = np.ones(len(values), np.int64)
        repeated, counts = self.repetitions(low, high)
        if len(repeated):
            repeating = np.repeat(words, np.diff(self.array("repeats")[low : high + 1]))
            times[np.searchsorted(codes << 32 | values, repeating << 32 | repeated)] = counts
        return codes, values, times

    def _ranks(self, word: int, values: Numbers) -> Numbers:
        """Return how many values before each of these, which all contain the word, contain it too."""
        pages, sizes, start = self.runs(word, word + 1)
        if not (sizes == BITMAP).any():
            return np.searchsorted(self.decode(word, word + 1)[0], values)
        lists, ranks, before = self.array("lists"), np.empty(len(values), np.int64), 0
        for page, size in zip(pages.tolist(), sizes.tolist(), strict=True):
            first, last = np.searchsorted(values, (page << PAGE_BITS, (page + 1) << PAGE_BITS)).tolist()
            here, low = lists[start : start + size], values[first:last] & (PAGE - 1)
            if size < BITMAP:
                ranks[first:last] = np.searchsorted(here, low.astype(np.uint16)) + before
                before += size
            else:
                bits = np.bitwise_count(here).astype(np.int64)
                ends, places = np.cumsum(bits), low >> 4
                below = here[places] & ((1 << (low & 15)) - 1).astype(np.uint16)
                ranks[first:last] = (ends - bits)[places] + np.bitwise_count(below) + before
                before += int(ends[-1])
            start += size
        return ranks

    def plain(self) -> TokenColumn:
        words = len(self.words)
        lengths = self.array("lengths").astype(np.int64)
        bounds = np.zeros(self.count + 1, np.int64)
        np.cumsum(lengths, out=bounds[1:])
        if not words:
            return TokenColumn(np.empty(0, np.int32), self.words, bounds, self.rows)
        codes, values, times = self._postings(0, words)
        values, codes = np.repeat(values, times), np.repeat(codes, times)
        if not self.positions:
            # Nothing depends on the order of the tokens within a value.
            tokens = (np.sort(values << 32 | codes) & 0xFFFFFFFF).astype(np.int32)
        else:
            tokens = np.empty(len(values), np.int32)
            tokens[bounds[values] + self.array("positions")] = codes
        return TokenColumn(tokens, self.words, bounds, self.rows)


class WordOccurrences(Occurrences):
    """The occurrences of one word, which are decoded as far as they are needed."""

    __slots__ = ("_column", "_size", "_word")

    def __init__(self, column: PostedTextColumn, word: int) -> None:
        super().__init__(column.count, NOWHERE, NOWHERE)
        self._column = column
        self._word = word
        self._size: int | None = None

    @property
    def size(self) -> int:
        if self._size is None:
            self._size = self._count()
        return self._size

    def _count(self) -> int:
        _, sizes, start = self._column.runs(self._word, self._word + 1)
        total, lists = 0, self._column.array("lists")
        for size in sizes.tolist():
            total += size if size < BITMAP else int(np.bitwise_count(lists[start : start + size]).sum(dtype=np.int64))
            start += size
        return total

    def _repetitions(self) -> tuple[Numbers, Numbers]:
        return self._column.repetitions(self._word, self._word + 1)

    def repeated(self, least: int) -> tuple[Numbers, Numbers]:
        values, counts = self._repetitions()
        if least > 2:
            kept = counts >= least
            values, counts = values[kept], counts[kept]
        return values.astype(np.int64), counts

    def listed(self) -> tuple[Numbers, Numbers]:
        values, _ = self._column.decode(self._word, self._word + 1)
        repeated, times = self._repetitions()
        if len(repeated) * _DENSE > self.total:
            everywhere = np.ones(self.total, times.dtype)
            everywhere[repeated.astype(np.int64)] = times
            return values, everywhere[values]
        counts = np.ones(len(values), times.dtype)
        counts[np.searchsorted(values, repeated)] = times
        return values, counts

    def counts_at(self, values: Numbers) -> Numbers:
        pages, sizes, start = self._column.runs(self._word, self._word + 1)
        repeated, times = self._repetitions()
        if int(sizes.sum(dtype=np.int64)) * _DENSE < self.total:
            listed = self._column.decode(self._word, self._word + 1)[0]
            counts = is_among(values, listed).astype(times.dtype)
        else:
            everywhere = self._everywhere_in(pages.tolist(), sizes.tolist(), start)
            if len(values) * _DENSE > len(repeated) and times.dtype == everywhere.dtype:
                everywhere[repeated.astype(np.int64)] = times
                return everywhere[values]
            counts = everywhere[values].astype(times.dtype)
        if len(repeated):
            np.maximum(counts, counts_among(values, repeated, times), out=counts)
        return counts

    def _everywhere_in(self, pages: list[int], sizes: list[int], start: int) -> Numbers:
        """Return an array with 1 for each value that contains the word."""
        found = np.zeros(-(-self.total // PAGE) * PAGE, np.uint8)
        lists = self._column.array("lists")
        for page, size in zip(pages, sizes, strict=True):
            here = found[page * PAGE : (page + 1) * PAGE]
            if size < BITMAP:
                here[lists[start : start + size]] = 1
            else:
                here[:] = _bits(lists, start)
            start += size
        return found


def _bits(lists: Numbers, start: int) -> Numbers:
    """Return the bitmap that starts here, as a byte per value of the page."""
    return np.unpackbits(lists[start : start + BITMAP].view(np.uint8), bitorder="little")


# --- building ----------------------------------------------------------------------------------------------------


def post_texts(column: TokenColumn, positions: bool) -> dict[str, Any]:
    """Return the arrays of the postings of a column, with positions if they are needed."""
    tokens, words = sort_words(column.tokens, column.words)
    lengths = np.diff(column.bounds)
    longest = int(lengths.max()) if len(lengths) else 0
    # Combine word and place into one number each: numbers are sorted much faster than anything else. Stay in place:
    # there are many tokens.
    places = np.arange(len(tokens))
    keys = tokens.astype(np.int64)
    keys <<= 32
    keys |= places
    keys.sort()
    codes = (keys >> 32).astype(np.int32)
    keys &= 0xFFFFFFFF
    parts = {"words": words, "lengths": narrow(lengths, longest + 1)}
    if positions:
        places -= np.repeat(column.bounds[:-1], lengths)
        parts |= {"positions": narrow(places, longest + 1)[keys], "occurrences": starts_of(tokens, len(words))}
    del places, tokens
    owners = np.repeat(np.arange(column.count, dtype=np.int32), lengths)[keys]
    del keys
    firsts = _changes(codes, owners)
    codes, values = codes[firsts], owners[firsts]
    counts = np.diff(firsts, append=len(owners))
    more = np.flatnonzero(counts > 1)
    most = int(counts[more].max()) if len(more) else 1
    parts |= {
        "repeats": starts_of(codes[more], len(words)),
        "repeated": values[more],
        "counts": narrow(counts[more], most + 1),
    }
    return parts | _runs(codes, values, len(words))


def _runs(codes: Numbers, values: Numbers, words: int) -> dict[str, Any]:
    pages = values >> PAGE_BITS
    firsts = _changes(codes, pages)
    sizes = np.diff(firsts, append=len(codes))
    low = (values & (PAGE - 1)).astype(np.uint16)
    pieces, before = [], 0
    for run in np.flatnonzero(sizes >= BITMAP).tolist():
        start, end = int(firsts[run]), int(firsts[run] + sizes[run])
        marks = np.zeros(PAGE, np.bool_)
        marks[low[start:end]] = True
        pieces += [low[before:start], np.packbits(marks, bitorder="little").view(np.uint16)]
        before = end
    owners, stored = codes[firsts], np.minimum(sizes, BITMAP)
    starts = np.zeros(words + 1, np.int64)
    np.cumsum(np.bincount(owners, weights=stored, minlength=words).astype(np.int64), out=starts[1:])
    page_of = pages[firsts]
    return {
        "runs": starts_of(owners, words),
        "starts": narrow(starts, int(starts[-1]) + 1),
        "pages": narrow(page_of, int(page_of.max()) + 1 if len(page_of) else 1),
        "sizes": stored.astype(np.uint16),
        "lists": np.concatenate([*pieces, low[before:]]),
    }


def _changes(first: Numbers, second: Numbers) -> Numbers:
    """Return the places where one of two arrays has another value than before, starting with the first place."""
    if not len(first):
        return np.empty(0, np.int64)
    changes = np.ones(len(first), np.bool_)
    np.not_equal(first[1:], first[:-1], out=changes[1:])
    changes[1:] |= second[1:] != second[:-1]
    return np.flatnonzero(changes)
