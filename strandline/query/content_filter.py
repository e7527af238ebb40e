"""Selects records by their content, whatever it is. Regular expressions are those of RE2, whose time is linear."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from strandline.arrow import pa
from strandline.late_import import LateModule
from strandline.query.content_language import (
    MAX_PATTERN_SIZE,
    Both,
    Compare,
    Either,
    Has,
    Node,
    Not,
    Path,
    Pattern,
    Text,
    parse,
    pattern_size,
)
from strandline.query.errors import BadQuery

pc: Any = LateModule("pyarrow.compute")

_decode = msgspec.json.Decoder().decode
#: Marks data that is not JSON.
_NOTHING = object()
_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}


class ContentFilter:
    """A parsed filter. Any thread may use it."""

    def __init__(self, text: str) -> None:
        """Raises BadQuery."""
        self._node = parse(text)
        patterns = list(_patterns(self._node))
        #: The size of all regular expressions: a search takes up to about 25 ns for each byte and each unit of it.
        self.pattern_size = sum(pattern_size(each.pattern) for each in patterns)
        # Before they are compiled, which takes seconds for the largest.
        if self.pattern_size > MAX_PATTERN_SIZE:
            raise BadQuery(
                "the regular expressions of the filter are too large; use fewer or smaller repetitions, such as * or + "
                f"instead of {{1,100}}: together they may have a size of {MAX_PATTERN_SIZE} characters, with "
                "repetitions written out"
            )
        for pattern in patterns:
            _check(pattern)

    def matches(self, data: Any) -> Any:
        """Which of these payloads match, as a numpy array of booleans. ``data`` is a binary Arrow array."""
        return _matches(self._node, _Payloads(data))


class _Payloads:
    """The payloads of a batch as text and as JSON, each made when a condition needs it."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self._documents: list[Any] = [None] * len(data)
        self._decoded = np.zeros(len(data), bool)
        self._text: Any = None

    def __len__(self) -> int:
        return len(self._data)

    @property
    def text(self) -> Any:
        if self._text is None:
            try:
                self._text = self._data.cast(pa.string())
            except pa.ArrowInvalid:
                self._text = pa.array([each.as_py().decode(errors="replace") for each in self._data], pa.string())
        return self._text

    def documents(self, rows: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """The rows that are JSON, with their values."""
        for row in rows:
            if not self._decoded[row]:
                self._decoded[row] = True
                try:
                    self._documents[row] = _decode(self._data[row].as_buffer())
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                    self._documents[row] = _NOTHING
            if self._documents[row] is not _NOTHING:
                yield row, self._documents[row]


def _matches(node: Node, payloads: _Payloads) -> Any:
    if isinstance(node, Both | Either):
        found = [_matches(each, payloads) for each in node.nodes]
        return np.logical_and.reduce(found) if isinstance(node, Both) else np.logical_or.reduce(found)
    if isinstance(node, Not):
        return ~_matches(node.node, payloads)
    if isinstance(node, Text):
        return _mask(pc.match_substring(payloads.text, node.text, ignore_case=True))
    if isinstance(node, Pattern):
        return _mask(pc.match_substring_regex(payloads.text, node.pattern, ignore_case=node.ignore_case))
    if isinstance(node, Has):
        return _where(payloads, node.path, lambda value: True)
    if isinstance(node.value, Pattern):
        return _matching(payloads, node.path, node.value)
    if node.relation in ("=", "!="):
        found = _equal(payloads, node, node.value)
        return found if node.relation == "=" else ~found
    return _where(payloads, node.path, _order(node, node.value))


def _mask(found: Any) -> Any:
    return found.to_numpy(zero_copy_only=False).astype(bool)


def _where(payloads: _Payloads, path: Path, holds: Any, rows: Sequence[int] | None = None) -> Any:
    """The payloads in which the condition holds for any value at the path."""
    mask = np.zeros(len(payloads), bool)
    for row, document in payloads.documents(range(len(payloads)) if rows is None else rows):
        mask[row] = any(holds(value) for value in values_at(document, path))
    return mask


def _equal(payloads: _Payloads, node: Compare, text: str) -> Any:
    word = _NOTHING if node.quoted else _WORDS.get(text, _NOTHING)
    number = None if node.quoted else _number(text)

    def holds(value: Any) -> bool:
        if isinstance(value, str):
            return value == text
        if isinstance(value, bool) or value is None:
            return value is word
        return number is not None and isinstance(value, int | float) and value == number

    if word is not _NOTHING or number is not None or not text:
        return _where(payloads, node.path, holds)
    # A string is in the text as it is, unless the text has escapes.
    likely = pc.or_(pc.match_substring(payloads.text, text), pc.match_substring(payloads.text, "\\"))
    return _where(payloads, node.path, holds, np.flatnonzero(_mask(likely)).tolist())


def _order(node: Compare, text: str) -> Any:
    """A test of a value: as numbers if both are, as texts if the written value is not a number."""
    number = None if node.quoted else _number(text)
    compare = _RELATIONS[node.relation]

    def holds(value: Any) -> bool:
        if number is None:
            return isinstance(value, str) and compare(value, text)
        return isinstance(value, int | float) and not isinstance(value, bool) and compare(value, number)

    return holds


def _matching(payloads: _Payloads, path: Path, pattern: Pattern) -> Any:
    rows: list[int] = []
    texts: list[str] = []
    for row, document in payloads.documents(range(len(payloads))):
        for value in values_at(document, path):
            if isinstance(value, str | int | float):
                rows.append(row)
                texts.append(value if isinstance(value, str) else msgspec.json.encode(value).decode())
    mask = np.zeros(len(payloads), bool)
    found = pc.match_substring_regex(pa.array(texts, pa.string()), pattern.pattern, ignore_case=pattern.ignore_case)
    mask[np.array(rows, np.int64)[_mask(found)]] = True
    return mask


def values_at(document: Any, path: Path) -> Iterator[Any]:
    """The values at a path. A member of an array is that of any of its elements."""
    values = [document]
    for step in path:
        found = []
        for value in values:
            if isinstance(step, int):
                if isinstance(value, list) and step < len(value):
                    found.append(value[step])
                continue
            for each in value if isinstance(value, list) else (value,):
                if isinstance(each, dict) and step in each:
                    found.append(each[step])
        values = found
    for value in values:
        if isinstance(value, list):
            yield from value
        yield value


def _number(text: str) -> float | int | None:
    try:
        value = _decode(text.encode())
    except msgspec.MsgspecError:
        return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _patterns(node: Node) -> Iterator[Pattern]:
    if isinstance(node, Pattern):
        yield node
    elif isinstance(node, Compare) and isinstance(node.value, Pattern):
        yield node.value
    elif isinstance(node, Not):
        yield from _patterns(node.node)
    elif isinstance(node, Both | Either):
        for each in node.nodes:
            yield from _patterns(each)


def _check(pattern: Pattern) -> None:
    try:
        pc.match_substring_regex(pa.array([""], pa.string()), pattern.pattern)
    except pa.ArrowInvalid as error:
        raise BadQuery(f"the regular expression /{pattern.pattern}/ is not valid: {error}") from None
