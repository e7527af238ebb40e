"""Conditions on rows: ``{"optionIdx": 1, "score": {"$gte": 3}, "own": true, "or": [{…}, {…}]}``.

Everything in a group must hold, and of ``or`` at least one of its groups. A field is compared with a value, or with the
operators ``$gt``, ``$gte``, ``$lt``, ``$lte`` and ``$between`` (both ends belong to it). ``own`` asks for the rows of
whoever reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import Any

from strandline.tables.errors import TableError, invalid
from strandline.tables.rows import Row

#: So that the work per row stays bounded.
MAX_CLAUSES = 256
MAX_DEPTH = 16

#: Says of a row whether it is wanted.
Condition = Callable[[Row], bool]

_MISSING = object()
_OF_ROWS: dict[str, Callable[[Row], Any]] = {
    "id": lambda row: row.id,
    "seq": lambda row: row.seq,
    "userId": lambda row: row.user,
    "createdAt": lambda row: row.created_at,
    "updatedAt": lambda row: row.updated_at,
    "idempotencyKey": lambda row: row.idempotency_key,
}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}


def compile_where(where: object, user: str | None, fields: Sequence[str] | None) -> Condition:
    """The condition; ``fields`` are those that there are, if that is known. Raises TableError."""
    return _Compiler(user, fields).group(where, 0)


class _Compiler:
    def __init__(self, user: str | None, fields: Sequence[str] | None) -> None:
        self._user = user
        self._fields = fields
        self._clauses = 0

    def group(self, where: object, depth: int) -> Condition:
        if not isinstance(where, Mapping):
            raise invalid("where must be an object of conditions", "where")
        if depth > MAX_DEPTH:
            raise invalid(f"where is nested more than {MAX_DEPTH} deep", "where")
        conditions = [self._clause(name, wanted, depth) for name, wanted in where.items()]
        if len(conditions) == 1:
            return conditions[0]
        return lambda row: all(condition(row) for condition in conditions)

    def _clause(self, name: str, wanted: object, depth: int) -> Condition:
        self._clauses += 1
        if self._clauses > MAX_CLAUSES:
            raise invalid(f"where has more than {MAX_CLAUSES} conditions", "where")
        if name == "own":
            if wanted is not True:
                raise invalid("own in where can only be true", "where")
            user = self._user
            return lambda row: row.user == user
        if name == "or":
            if not isinstance(wanted, Sequence) or isinstance(wanted, str) or not wanted:
                raise invalid("or in where must be a list of groups of conditions", "where")
            groups = [self.group(group, depth + 1) for group in wanted]
            return lambda row: any(group(row) for group in groups)
        return self._field(name, wanted)

    def _field(self, name: str, wanted: object) -> Condition:
        value_of = _OF_ROWS.get(name)
        if value_of is None:
            if self._fields is not None and name not in self._fields:
                raise invalid(f"where names the field {name!r}, which there is not", "where")
            value_of = lambda row: row.payload.get(name, _MISSING)  # noqa: E731
        if not isinstance(wanted, Mapping) or not any(str(key).startswith("$") for key in wanted):
            return lambda row: is_same(value_of(row), wanted)
        tests = [_comparison(operator, bound) for operator, bound in wanted.items()]
        return lambda row: all(test(value_of(row)) for test in tests)


def _comparison(operator: str, bound: Any) -> Callable[[Any], bool]:
    if operator == "$between":
        if not isinstance(bound, Sequence) or isinstance(bound, str) or len(bound) != 2:
            raise invalid("$between in where must have a list of two values", "where")
        low, high = (_check_bound(operator, each) for each in bound)
        return lambda value: is_comparable(value, low) and is_comparable(value, high) and low <= value <= high
    compare = _COMPARISONS.get(operator)
    if compare is None:
        raise _unknown(operator)
    _check_bound(operator, bound)
    return lambda value: is_comparable(value, bound) and compare(value, bound)


def _check_bound(operator: str, bound: Any) -> Any:
    if isinstance(bound, bool) or not isinstance(bound, int | float | str):
        raise invalid(f"{operator} in where must have a number or a string", "where")
    return bound


def _unknown(operator: str) -> TableError:
    known = ", ".join([*_COMPARISONS, "$between"])
    return invalid(f"where has no operator {operator!r}: there are {known}", "where")


def is_same(value: Any, wanted: Any) -> bool:
    """Equality as JSON has it: 1 is 1.0, but not true."""
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    if isinstance(value, list) and isinstance(wanted, list):
        return len(value) == len(wanted) and all(map(is_same, value, wanted))
    if isinstance(value, dict) and isinstance(wanted, Mapping):
        return value.keys() == wanted.keys() and all(is_same(value[key], wanted[key]) for key in value)
    return bool(value == wanted)


def is_comparable(value: Any, bound: Any) -> bool:
    """Whether one can be greater than the other: numbers among themselves, and texts."""
    if isinstance(value, bool):
        return False
    return isinstance(value, str) if isinstance(bound, str) else isinstance(value, int | float)
