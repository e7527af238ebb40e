"""What Spark lets the source filter by itself: which logs, which seqs, which times, which keys.

All filters hold together. What is taken here is met exactly, so that Spark need not look again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

#: Each key is looked up by itself. With more of them it is quicker to read everything, and let Spark choose.
MAX_KEYS = 16

_EQUAL = (EqualTo, EqualNullSafe)
_COMPARISONS = (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
#: Columns that are never null.
_ALWAYS_THERE = ("log", "epoch", "seq", "ts")


class Wanted(msgspec.Struct):
    """``None`` is no condition. ``after`` is not included, ``through`` is; ``since`` is, ``until`` is not."""

    logs: frozenset[str] | None = None
    prefixes: list[str] = []
    epochs: frozenset[int] | None = None
    after: int = 0
    through: int | None = None
    since: int | None = None
    until: int | None = None
    keys: frozenset[str] | None = None

    def has_log(self, name: str, epoch: int) -> bool:
        return (
            (self.logs is None or name in self.logs)
            and (self.epochs is None or epoch in self.epochs)
            and all(name.startswith(prefix) for prefix in self.prefixes)
        )

    # --- what filters add ------------------------------------------------------------------------------------------

    def take(self, filters: Iterable[Filter]) -> Iterable[Filter]:
        """Narrow this down; gives the filters that are left for Spark."""
        left = [each for each in filters if not self._take(each)]
        return [each for each in left if not self._is_implied(each)]

    def _is_implied(self, each: Filter) -> bool:
        return isinstance(each, IsNotNull) and (
            each.attribute in [(name,) for name in _ALWAYS_THERE]
            or (each.attribute == ("key",) and self.keys is not None)
        )

    def _take(self, each: Any) -> bool:
        if len(getattr(each, "attribute", ())) != 1:
            return False
        column = each.attribute[0]
        if isinstance(each, (*_EQUAL, In)):
            values = [each.value] if isinstance(each, _EQUAL) else [value for value in each.value if value is not None]
            return None not in values and self._equals(column, values)
        if isinstance(each, StringStartsWith) and column == "log":
            self.prefixes = [*self.prefixes, each.value]
            return True
        return isinstance(each, _COMPARISONS) and each.value is not None and self._compares(column, each)

    def _equals(self, column: str, values: Sequence[Any]) -> bool:
        if column == "log":
            self.logs = _both(self.logs, values)
        elif column == "epoch":
            self.epochs = _both(self.epochs, values)
        elif column == "key" and len(values) <= MAX_KEYS:
            self.keys = _both(self.keys, values)
        elif column in ("seq", "ts") and len(values) == 1:
            for kind in (GreaterThanOrEqual, LessThanOrEqual):
                if not self._compares(column, kind((column,), values[0])):
                    return False
        else:
            return False
        return True

    def _compares(self, column: str, each: Any) -> bool:
        if column == "seq":
            self._narrow_seq(each, int(each.value))
            return True
        if column == "ts" and isinstance(each.value, datetime):
            self._narrow_time(each, each.value)
            return True
        return False

    def _narrow_seq(self, each: Any, value: int) -> None:
        if isinstance(each, (GreaterThan, GreaterThanOrEqual)):
            self.after = max(self.after, value if isinstance(each, GreaterThan) else value - 1)
        else:
            last = value - 1 if isinstance(each, LessThan) else value
            self.through = last if self.through is None else min(self.through, last)

    def _narrow_time(self, each: Any, value: datetime) -> None:
        """Times of records are whole milliseconds, those of filters need not be."""
        microseconds = _microseconds(value)
        if isinstance(each, (GreaterThan, LessThanOrEqual)):
            bound = microseconds // 1000 + 1
        else:
            bound = -(-microseconds // 1000)
        if isinstance(each, (GreaterThan, GreaterThanOrEqual)):
            self.since = bound if self.since is None else max(self.since, bound)
        else:
            self.until = bound if self.until is None else min(self.until, bound)


def _both(before: frozenset[Any] | None, values: Sequence[Any]) -> frozenset[Any]:
    found = frozenset(values)
    return found if before is None else before & found


def _microseconds(value: datetime) -> int:
    passed = (value if value.tzinfo else value.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
