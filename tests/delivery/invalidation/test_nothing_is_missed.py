"""The promise: whoever waits on something that has changed after their cursor is told, whatever happens meanwhile."""

from __future__ import annotations

import tempfile
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.invalidation_clients import (
    Stand,
    change,
    declare,
    field_key,
    membership_key,
    row_keys,
    touching,
    watch_key,
)

from strandline.delivery.invalidation.keys import table_key
from strandline.delivery.invalidation.waiters import TouchAnswer
from strandline.schema.profiles.touch_settings import MemorySettings, TemplateSettings, TouchSettings

ENTITIES = ("posts", "posts", "posts", "users")
TEMPLATES = (("a",), ("a", "b"))
VALUES = ("x", "x", "y", None)
Row = dict[str, Any]

rows = st.fixed_dictionaries({"a": st.sampled_from(VALUES), "b": st.sampled_from(VALUES), "c": st.integers(0, 2)})
changes = st.tuples(
    st.just("change"), st.sampled_from(ENTITIES), st.sampled_from(["insert", "update", "delete"]), rows, rows,
    st.sampled_from(["whole", "whole", "whole", "missing", "partial"]),
)  # fmt: skip
wishes = st.fixed_dictionaries(
    {
        "entity": st.sampled_from(ENTITIES),
        "names": st.sampled_from(TEMPLATES),
        "arguments": st.just(("x", "x")),
        "kind": st.sampled_from(["watch", "watch", "membership", "field", "table", "coarse"]),
        "named": st.booleans(),
        "exact": st.booleans(),
        "broad": st.booleans(),
    }
)
activations = st.tuples(st.just("activate"), st.sampled_from(ENTITIES), st.sampled_from(TEMPLATES))
beginnings = st.tuples(st.just("begin"), wishes)
waits = st.tuples(st.just("wait"), st.integers(0, 2), st.sampled_from([0, 30, 400, 5000]))
pauses = st.tuples(st.just("time"), st.sampled_from([1, 7, 30, 110, 110, 1500, 4000]))
stalls = st.tuples(st.just("stall"), st.sampled_from([3, 60]))
slices = st.tuples(st.just("step"))
steps = st.one_of(changes, changes, changes, waits, waits, pauses, pauses, slices, stalls, activations, beginnings)
scripts = st.tuples(
    st.lists(activations, min_size=1, max_size=3),
    st.lists(beginnings, min_size=1, max_size=3),
    st.lists(steps, min_size=12, max_size=60),
)

configurations = st.builds(
    TouchSettings,
    coarse_interval_ms=st.sampled_from([1, 100, 300]),
    coalesce_window_ms=st.sampled_from([10, 100]),
    on_missing_before=st.sampled_from(["coarse", "error"]),
    lag_degrade=st.sampled_from([3, 5000]),
    lag_recover=st.sampled_from([1, 1000]),
    fine_budget_per_batch=st.sampled_from([0, 2, 2000]),
    fine_tokens_per_second=st.sampled_from([2, 200_000]),
    fine_burst_tokens=st.sampled_from([3, 400_000]),
    lag_reserved_budget_per_batch=st.sampled_from([0, 1, 200]),
    memory=st.builds(
        MemorySettings,
        filter_pow2=st.just(12),
        pending_max_keys=st.sampled_from([3, 100_000]),
        key_index_max_keys=st.sampled_from([1, 32]),
        hot_key_ttl_ms=st.sampled_from([50, 2000]),
        hot_template_ttl_ms=st.sampled_from([50, 2000]),
        hot_max_keys=st.sampled_from([1, 1000]),
        hot_max_templates=st.sampled_from([1, 1000]),
    ),
    templates=st.builds(
        TemplateSettings,
        default_inactivity_ttl_ms=st.sampled_from([1000, 3_600_000]),
        gc_interval_ms=st.just(500),
        max_active_per_entity=st.sampled_from([1, 256]),
        max_active_per_stream=st.sampled_from([2, 2048]),
    ),
)


class Subscriber:
    """A client that keeps a result and goes on waiting from the cursor that it was given last."""

    def __init__(self, scenario: Scenario, wish: dict[str, Any]) -> None:
        self.scenario = scenario
        self.wish = wish
        scenario.stand.runtime.attend()
        self.cursor = scenario.stand.generation
        #: How many changes its result knows of.
        self.knows = len(scenario.changes)
        self.waiting = False

    @property
    def arguments(self) -> dict[str, str]:
        return dict(zip(self.wish["names"], self.wish["arguments"], strict=False))

    def concerned_by(self, entity: str, before: Row | None, after: Row | None) -> bool:
        kind = self.wish["kind"]
        if entity != self.wish["entity"]:
            return False
        if kind in ("table", "coarse"):
            return True
        was, is_now = self._matches(before), self._matches(after)
        if kind == "watch":
            return was or is_now
        if was != is_now or kind == "membership":
            return was != is_now
        return was and before is not None and after is not None and before["c"] != after["c"]

    def _matches(self, row: Row | None) -> bool:
        return row is not None and all(row[name] == argument for name, argument in self.arguments.items())

    @property
    def owed(self) -> bool:
        """Whether it must be told something."""
        return any(self.concerned_by(*change) for change in self.scenario.changes[self.knows :])

    def wait(self, timeout_ms: int) -> None:
        if self.waiting:
            return
        stand, wish = self.scenario.stand, self.wish
        identifier = row_keys(wish["entity"], **self.arguments)[0]
        template = stand.runtime.templates.get(identifier)
        by_rows = wish["kind"] not in ("table", "coarse")
        if by_rows and not wish["named"] and (template is None or template.active_from > self.cursor):
            # A key by itself does not say of which template it is: it is touched only while that one is active.
            self.knows, self.cursor = len(self.scenario.changes), stand.generation
            return
        self.waiting = True
        client = stand.wait(
            *self.keys(),
            since=self.cursor,
            timeout_ms=timeout_ms,
            templates=(identifier,) if wish["named"] else None,
            coarse=wish["kind"] == "coarse",
            exact=wish["exact"] and wish["kind"] != "coarse",
            tell=self.told,
        )
        if client.answer is not None:
            self.told(client.answer)

    def keys(self) -> list[int]:
        entity, kind = self.wish["entity"], self.wish["kind"]
        if kind == "watch":
            keys = [watch_key(entity, **self.arguments)]
        elif kind in ("membership", "field"):
            keys = [membership_key(entity, **self.arguments)]
            if kind == "field":
                keys.append(field_key(entity, "c", **self.arguments))
        else:
            keys = [table_key(entity)]
        return [*keys, table_key("nothing")] if self.wish["broad"] else keys

    def told(self, answer: TouchAnswer) -> None:
        assert self.waiting
        self.waiting = False
        self.cursor = answer.generation
        if answer.verdict == "touched":
            self.knows = len(self.scenario.changes)


class Scenario:
    def __init__(self, stand: Stand) -> None:
        self.stand = stand
        self.changes: list[tuple[str, Row | None, Row | None]] = []
        self.subscribers: list[Subscriber] = []

    def take(self, kind: str, *arguments: Any) -> None:
        if kind == "change":
            self.change(*arguments)
        elif kind == "activate":
            self.stand.activate(declare(arguments[0], *arguments[1]))
        elif kind == "begin":
            self.subscribers.append(Subscriber(self, arguments[0]))
        elif kind == "wait" and self.subscribers:
            self.subscribers[-1 - arguments[0] % len(self.subscribers)].wait(arguments[1])
        elif kind == "time":
            self.stand.pass_time(arguments[0])
        elif kind == "stall":
            self.stand.clock.advance(arguments[0])
        elif kind == "step":
            self.stand.runtime.step(perf_counter() - 1)

    def change(self, entity: str, operation: str, before: Row, after: Row, said: str) -> None:
        old = None if operation == "insert" else before
        new = None if operation == "delete" else after
        shown = old
        if said == "missing":
            shown = None
        elif said == "partial" and old is not None:
            shown = {"c": old["c"]}
        self.stand.append(change(entity, operation, new, shown))
        self.changes.append((entity, old, new))

    def check(self) -> None:
        """Everybody waits once more; then nobody is owed anything."""
        # Until then somebody's time may be up before what they wait for is looked at.
        self.stand.pass_time(500)
        for subscriber in self.subscribers:
            subscriber.wait(60_000)
        self.stand.pass_time(500)
        for subscriber in self.subscribers:
            assert not subscriber.owed, (subscriber.wish, subscriber.cursor, subscriber.knows)


@settings(deadline=None, max_examples=300)
@given(configurations, scripts)
def test_whoever_waits_on_what_has_changed_is_told(
    configuration: TouchSettings, script: tuple[list[tuple[Any, ...]], ...]
) -> None:
    with tempfile.TemporaryDirectory() as directory, touching(Path(directory), configuration) as stand:
        scenario = Scenario(stand)
        for step in chain(*script):
            scenario.take(*step)
        scenario.check()
