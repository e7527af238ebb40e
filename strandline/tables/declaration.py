"""Table declarations, and their rate limits: how many rows a user may append within a period.

A declaration is plain data; :class:`~strandline.tables.table.Tables` binds it to an engine.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

from msgspec import Struct

from strandline.engine.record import Durability
from strandline.query.config_parser import MAX_FIELDS
from strandline.schema.lenses import Lens
from strandline.schema.log_search import text_registry
from strandline.tables.errors import BadDeclaration, TableError
from strandline.tables.hooks import NO_HOOKS, Hooks
from strandline.tables.names import check_table_name
from strandline.tables.schemas import Schema, schema_of
from strandline.tables.versions import parse_lenses

#: The default window of a rate limit, in milliseconds.
MINUTE = 60_000
#: Users without recent appends are removed from memory when there are more users than this.
_MANY_USERS = 1024


class RateLimit(Struct, frozen=True):
    """At most ``max`` rows per user within any ``window`` milliseconds."""

    max: int
    window: int = MINUTE

    def __post_init__(self) -> None:
        for name in ("max", "window"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise BadDeclaration(f"{name} of a rate limit must be a whole number above 0, not {value!r}")


class SlidingWindow:
    """The times of each user's appends within the window. The times are lost on restart. Not thread-safe."""

    def __init__(self, limit: RateLimit, table: str) -> None:
        self._limit = limit
        self._table = table
        self._times: dict[str, deque[int]] = {}
        self._look_at = _MANY_USERS

    def check(self, user: str, count: int, now: int) -> None:
        """Raise TableError if ``count`` more rows would exceed the user's limit."""
        limit = self._limit
        times = self._times.get(user, ())
        if isinstance(times, deque):
            _forget(times, now - limit.window)
        if len(times) + count <= limit.max:
            return
        described = {"max": limit.max, "remaining": max(limit.max - len(times), 0), "window": limit.window}
        accepted = f"{self._table} accepts {limit.max} rows per user in {limit.window / 1000:.10g} s"
        if count > limit.max:
            message = f"{accepted}, not {count} at once"
            raise TableError("VALIDATION_FAILED", message, limit=described, table=self._table, op="append")
        # The append is allowed once this append has left the window.
        last_to_go = times[len(times) + count - limit.max - 1]
        retry_after = last_to_go + limit.window - now
        message = f"{accepted}: retry after {-(-retry_after // 1000)} s"
        raise TableError(
            "RATE_LIMITED", message, retryAfter=retry_after, limit=described, table=self._table, op="append"
        )

    def add(self, user: str, count: int, now: int) -> None:
        """Record ``count`` appended rows."""
        times = self._times.get(user)
        if times is None:
            if len(self._times) >= self._look_at:
                self._forget_users(now)
            times = self._times[user] = deque()
        times.extend([now] * count)

    def _forget_users(self, now: int) -> None:
        for user, times in list(self._times.items()):
            _forget(times, now - self._limit.window)
            if not times:
                del self._times[user]
        self._look_at = max(_MANY_USERS, 2 * len(self._times))


def _forget(times: deque[int], until: int) -> None:
    while times and times[0] <= until:
        times.popleft()


#: Returns the data of an id, or None if the id is unknown.
LookUp = Callable[[str], Mapping[str, Any] | None]


@dataclass(frozen=True, eq=False)
class TableDeclaration:
    """A declared table: rows under parents. Create it with :func:`make_log`."""

    name: str
    #: The label of parents, or the table whose rows are the parents.
    parent: str | TableDeclaration
    schema: Schema
    soft_delete: bool
    rate_limit: RateLimit | None
    #: Whether public reads are allowed; with ``public_field``, only for parents whose row has true in that field.
    public: bool
    public_field: str | None
    #: The fields that can be searched. Empty if the table has no search.
    search_fields: tuple[str, ...]
    hooks: Hooks
    with_author: LookUp | None
    parent_row: LookUp | None
    durability: Durability
    #: How rows of earlier versions of the schema become rows of the next one, by the earlier version.
    lenses: Mapping[int, Lens]
    #: Whether the rows of all parents can be read together.
    feed: bool
    #: The roles whose users act as the owner of every parent.
    moderators: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<TableDeclaration {self.name!r}>"

    @property
    def search_registry(self) -> bytes | None:
        """How the rows are searched, as other protocols and the pipeline read it; None if the table has no search."""
        return text_registry(self.name, self.search_fields)

    @property
    def parent_label(self) -> str:
        return self.parent if isinstance(self.parent, str) else self.parent.name


def make_log(
    name: str,
    *,
    parent: str | TableDeclaration,
    schema: object,
    soft_delete: bool = False,
    rate_limit: int | RateLimit | Mapping[str, int] | None = None,
    pub: bool | str | Mapping[str, str] | None = None,
    search: bool | str | Sequence[str] | Mapping[str, str] | None = None,
    hooks: Hooks | None = None,
    with_author: LookUp | None = None,
    parent_row: LookUp | None = None,
    durability: Durability = "fsync",
    moderators: Sequence[str] = (),
    lenses: Mapping[int, Sequence[Mapping[str, Any]]] | None = None,
    feed: bool = False,
) -> TableDeclaration:
    """Declare a table. Raises BadDeclaration.

    ``parent`` is another table or a label. If it is a table, its rows are the parents: a parent must exist, and its
    author is the owner. If it is a label, ``parent_row`` may look up parents elsewhere: it returns the parent's data,
    with the owner as ``userId``, or None if the parent does not exist.

    ``schema`` describes payloads: a msgspec Struct, a dataclass, a pydantic model, or a JSON Schema.

    ``soft_delete`` hides removed rows so that they can be restored, unless the removal is hard. ``rate_limit`` is the
    maximum number of rows that a user may append per minute, or a :class:`RateLimit` (also ``{"max": …, "window":
    …}``). ``pub`` allows public reads: True for all parents, or the name of a field (also ``{"parentField": name}``)
    for the parents whose row has true in it.
    ``search`` names the searchable field or fields (also ``{"field": name}``); True selects all text fields.
    ``with_author`` returns the data about a user that readers see as the author of a row. ``moderators`` are roles:
    a :class:`~strandline.tables.users.User` who has one of them acts as the owner of every parent.

    ``lenses`` are needed if the schema changes so that old rows do not fit it: for the version before the change, the
    operations that turn a payload of that version into one of the next, as in the schemas of streams.

    ``feed`` keeps the order of all rows of the table, so that the rows of all parents can be read and followed
    together.
    """
    check_table_name(name)
    checked = schema_of(schema)
    if not (isinstance(parent, TableDeclaration) or (isinstance(parent, str) and parent)):
        raise BadDeclaration(f"parent of {name} must be a label or a declared table, not {parent!r}")
    if isinstance(parent, TableDeclaration) and parent_row is not None:
        raise BadDeclaration(f"{name} cannot have parent_row: its parents are rows of {parent.name}")
    for what, function in (("with_author", with_author), ("parent_row", parent_row)):
        if function is not None and not callable(function):
            raise BadDeclaration(f"{what} of {name} must be a function that takes an id")
        if inspect.iscoroutinefunction(function):
            raise BadDeclaration(f"{what} of {name} must be a plain function, not a coroutine function")
    if durability not in get_args(Durability) or durability == "ephemeral":
        raise BadDeclaration(f"durability of {name} must be memory, disk, fsync or replicated, not {durability!r}")
    public, public_field = _public(name, pub, parent, parent_row)
    return TableDeclaration(
        name=name,
        parent=parent,
        schema=checked,
        soft_delete=_flag(name, "soft_delete", soft_delete),
        rate_limit=_rate_limit(name, rate_limit),
        public=public,
        public_field=public_field,
        search_fields=_search_fields(name, search, checked),
        hooks=_hooks(name, hooks),
        with_author=with_author,
        parent_row=parent_row,
        durability=durability,
        moderators=_moderators(name, moderators),
        lenses=parse_lenses(name, lenses),
        feed=_flag(name, "feed", feed),
    )


def _flag(name: str, option: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadDeclaration(f"{option} of {name} must be True or False, not {value!r}")
    return value


def _moderators(name: str, moderators: object) -> frozenset[str]:
    if isinstance(moderators, Sequence) and not isinstance(moderators, str):
        if all(isinstance(role, str) and role for role in moderators):
            return frozenset(moderators)
    raise BadDeclaration(f'moderators of {name} must be a list of roles, such as ("moderator",), not {moderators!r}')


def _rate_limit(name: str, limit: object) -> RateLimit | None:
    if limit is None or isinstance(limit, RateLimit):
        return limit
    if type(limit) is int:
        return RateLimit(limit)
    if isinstance(limit, Mapping) and {"max"} <= limit.keys() <= {"max", "window"}:
        return RateLimit(**limit)
    raise BadDeclaration(f"rate_limit of {name} must be a number of rows per minute or a RateLimit, not {limit!r}")


def _hooks(name: str, hooks: object) -> Hooks:
    if hooks is None:
        return NO_HOOKS
    if not isinstance(hooks, Hooks):
        raise BadDeclaration(f"hooks of {name} must be Hooks(…), not {hooks!r}")
    return hooks


def _public(
    name: str, pub: object, parent: str | TableDeclaration, parent_row: LookUp | None
) -> tuple[bool, str | None]:
    if pub is None or isinstance(pub, bool):
        return bool(pub), None
    field = pub.get("parentField") if isinstance(pub, Mapping) and set(pub) == {"parentField"} else pub
    if not isinstance(field, str) or not field:
        raise BadDeclaration(f'pub of {name} must be True, a field, or {{"parentField": field}}, not {pub!r}')
    if isinstance(parent, str) and parent_row is None:
        raise BadDeclaration(
            f"pub of {name} names a field of the parent's row: set parent to a table, or set parent_row"
        )
    if isinstance(parent, TableDeclaration) and parent.schema.fields is not None and field not in parent.schema.fields:
        raise BadDeclaration(f"pub of {name} names an unknown field of {parent.name}: {field!r}")
    return True, field


def _search_fields(name: str, search: object, schema: Schema) -> tuple[str, ...]:
    fields = _search(name, search, schema)
    if len(fields) > MAX_FIELDS:
        raise BadDeclaration(f"search of {name} has {len(fields)} fields; at most {MAX_FIELDS} are allowed")
    return fields


def _search(name: str, search: object, schema: Schema) -> tuple[str, ...]:
    if search is None or search is False:
        return ()
    if search is True:
        if not schema.text_fields:
            raise BadDeclaration(f"search of {name} is True, but its schema has no text field: name the fields")
        return schema.text_fields
    if isinstance(search, Mapping):
        if set(search) != {"field"}:
            raise BadDeclaration(f'search of {name} must be True, fields, or {{"field": name}}, not {search!r}')
        search = search["field"]
    fields = (search,) if isinstance(search, str) else tuple(cast(Sequence[str], search))
    for field in fields:
        if not isinstance(field, str) or not field or (schema.fields is not None and field not in schema.fields):
            raise BadDeclaration(f"search of {name} names an unknown field: {field!r}")
    if not fields:
        raise BadDeclaration(f"search of {name} must name at least one field")
    return fields
