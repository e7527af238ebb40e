"""A document against a list: whatever is appended, pulled, deleted, sealed and reopened."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.collections_in_process import NOW, Stand, opened

from strandline.engine import ManualClock
from strandline.signing.canonical_json import canonical, parse

TEXT = st.text(max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
DATA = st.dictionaries(TEXT | st.sampled_from(["__proto__", "constructor"]), VALUES, max_size=3)
DROPPED = {"__proto__", "constructor", "prototype", "__class__", "__dict__"}


def kept(data: dict[str, Any]) -> dict[str, Any]:
    """What is left of an element."""
    return {
        name: kept(value) if isinstance(value, dict) else value for name, value in data.items() if name not in DROPPED
    }


class DocumentModel(RuleBasedStateMachine):
    """``elements`` is the model: times and data, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.place = TemporaryDirectory()
        self.clock = ManualClock(NOW)
        self.elements: list[tuple[int, Any]] = []
        self.latest = -1
        self.server: Stand | None = None

    @initialize(most=st.none() | st.integers(1, 12), page=st.none() | st.integers(1, 4), strict=st.booleans())
    def begin(self, most: int | None, page: int | None, strict: bool) -> None:
        self.most, self.page, self.strict = most, page, strict
        self.open()

    def open(self) -> None:
        collection = opened(max_items=self.most, max_pull_limit=self.page, strict=self.strict)
        self.server = Stand(Path(self.place.name), collection, clock=self.clock)

    def teardown(self) -> None:
        if self.server is not None:
            self.server.__exit__(None, None, None)
        self.place.cleanup()

    @property
    def there(self) -> Stand:
        assert self.server is not None
        return self.server

    # --- what can happen -------------------------------------------------------------------------------------------

    @rule(data=DATA, offset=st.none() | st.integers(-3, 5))
    def push(self, data: dict[str, Any], offset: int | None) -> None:
        """With a time near that of the last element, or without one."""
        ts = None if offset is None else max(0, self.latest + offset)
        answer = self.there.push("events", data, ts)
        if self.most is not None and len(self.elements) >= self.most:
            assert (answer.status, answer.json) == (409, {"error": "append_limit_exceeded", "limit": self.most})
        elif ts is not None and ts <= self.latest:
            assert answer.error == (409, "non_monotonic_timestamp")
        else:
            expected = max(self.clock.now(), self.latest + 1) if ts is None else ts
            self.elements.append((expected, kept(data)))
            self.latest = expected
            assert answer.json == {"hash": self.hash(), "timestamp": expected}

    @rule(ms=st.integers(0, 10))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule()
    def seal(self) -> None:
        self.there.engine.seal()

    @rule()
    def restart(self) -> None:
        self.there.__exit__(None, None, None)
        self.open()

    @precondition(lambda self: self.elements)
    @rule(place=st.integers(0, 20))
    def somebody_deletes_an_element(self, place: int) -> None:
        log = self.there.engine.log("events")
        seqs = [record.seq for record in log.read(limit=1000)]
        place %= len(seqs)
        log.delete(seqs=[seqs[place]]).wait()
        del self.elements[place]

    # --- what must be so -------------------------------------------------------------------------------------------

    def hash(self) -> str:
        if not self.elements:
            return ""
        return sha256(canonical({"n": len(self.elements), "last": self.elements[-1][1]})).hexdigest()

    def pulled(self, query: str) -> tuple[list[tuple[int, Any]], bool]:
        answer = parse(self.there.pull("events", query).body)
        assert answer["hash"] == self.hash()
        # Numbers are compared as every reader has them: as doubles.
        return [(item["ts"], canonical(item["data"])) for item in answer["data"]["items"]], answer.get("more", False)

    @invariant()
    def pulls_are_those_of_the_list(self) -> None:
        if self.server is None:
            return
        everything = [(ts, canonical(data)) for ts, data in self.elements]
        assert self.pulled("full=true") == (everything, False)
        for checkpoint in (0, NOW, self.latest - 1, self.latest, self.latest + 1):
            if checkpoint < 0:
                continue
            behind = [element for element in everything if element[0] > checkpoint or not checkpoint]
            paged = self.page if self.strict and self.page is not None else len(behind)
            assert self.pulled(f"checkpoint={checkpoint}") == (behind[:paged], len(behind) > paged)
            for last in (0, 1, 3):
                shown = min(last, self.page or last)
                expected = behind[len(behind) - min(shown, len(behind)) :]
                cut = min(last, len(behind)) > shown
                assert self.pulled(f"checkpoint={checkpoint}&last={last}") == (expected, cut)


TestDocumentModel = DocumentModel.TestCase
TestDocumentModel.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
