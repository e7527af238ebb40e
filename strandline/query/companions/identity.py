"""What was indexed, and how: short names for it, so that a companion is only asked what it can answer."""

from __future__ import annotations

from hashlib import sha256

import msgspec

from strandline.query.bound import Bound, bind_search
from strandline.query.config import Measure, Rollup, SearchConfig
from strandline.query.index import Plan, Versions, plan_of

#: Goes into every name: what other code has indexed in another way has another name.
_GENERATION = "1"


def plan_id(plan: Plan) -> str:
    """The name of a plan. Plans that are equal, and no others, have the same."""
    return _name(msgspec.json.encode(plan))


def plan_id_of(config: SearchConfig) -> str:
    return plan_id(plan_of(config))


def rollup_id(rollup: Rollup, config: SearchConfig) -> str:
    """The name of everything that decides what a rollup adds up: another alias in a query may make it another one."""
    measures = [
        (name, measure.kind, _bound(measure, config), measure.field, measure.histogram, measure.pointers)
        for name, measure in sorted(rollup.measures.items())
    ]
    intervals = sorted(set(rollup.intervals.values()))
    facts = rollup.name, rollup.timestamp_field, intervals, rollup.dimensions, _bound(rollup, config), measures
    # What is shown of a bound query names the classes of its parts, which their JSON does not.
    return _name(repr(facts).encode())


def rollups_id(config: SearchConfig) -> str:
    """The name of all rollups of a configuration."""
    return _name(*(rollup_id(config.rollups[name], config).encode() for name in sorted(config.rollups)))


def versions_between(versions: Versions, first: int, last: int) -> tuple[tuple[int, int], ...]:
    """Under which schema versions the records from ``first`` to ``last`` are read, and from where on each."""
    before = [version for start, version in versions if start <= first]
    found = [(first, before[-1] if before else 0)]
    for start, version in versions:
        if first < start <= last and version != found[-1][1]:
            found.append((start, version))
    return tuple(found)


def _bound(asked: Rollup | Measure, config: SearchConfig) -> Bound | None:
    return None if asked.include is None else bind_search(asked.include, config)


def _name(*parts: bytes) -> str:
    digest = sha256(_GENERATION.encode())
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:32]
