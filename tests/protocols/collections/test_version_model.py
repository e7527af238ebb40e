"""A regular document against a list of its versions: whatever is pushed at once, sealed and reopened."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.collections_in_process import NOW, Stand

from strandline.collections import Collection, CollectionError
from strandline.collections.config import Durability
from strandline.collections.regular_documents import VersionPushed, prepare_push
from strandline.engine import ManualClock
from strandline.signing.canonical_json import canonical, digest, parse

DATA = st.dictionaries(st.sampled_from("abc"), st.integers(-3, 3) | st.floats(0, 1) | st.text(max_size=3), max_size=2)


class VersionModel(RuleBasedStateMachine):
    """``versions`` is the model: times and data, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.place = TemporaryDirectory()
        self.clock = ManualClock(NOW)
        self.versions: list[tuple[int, Any]] = []
        self.server: Stand | None = None

    @initialize(
        most=st.integers(1, 4), ttl=st.none() | st.integers(5, 20), durability=st.sampled_from(["memory", "fsync"])
    )
    def begin(self, most: int, ttl: int | None, durability: Durability) -> None:
        self.most, self.ttl, self.durability = most, ttl, durability
        self.open()

    def open(self) -> None:
        collection = Collection(
            name="members",
            storage_path="members",
            read_roles=("public",),
            write_roles=("public",),
            max_versions=self.most,
            ttl_ms=self.ttl,
            durability=self.durability,
        )
        self.server = Stand(Path(self.place.name), collection, clock=self.clock)

    def teardown(self) -> None:
        if self.server is not None:
            self.server.__exit__(None, None, None)
        self.place.cleanup()

    @property
    def there(self) -> Stand:
        assert self.server is not None
        return self.server

    # --- the model -----------------------------------------------------------------------------------------------

    def hash(self) -> str:
        return digest(self.versions[-1][1]) if self.versions else ""

    def expired(self) -> bool:
        return self.ttl is not None and bool(self.versions) and self.clock.now() - self.versions[-1][0] > self.ttl

    def base(self, which: str) -> str | None:
        """The base hash of a push: that of the current version, of an earlier one, or none."""
        if which == "earlier":
            return digest(self.versions[0][1]) if self.versions else "0" * 64
        return self.hash() if which == "current" else None

    def accept(self, base: str | None, data: Any) -> bool:
        """Whether the model accepts a push. If so, it is the current version."""
        if (base or "") != self.hash() and (base or not self.expired()):
            return False
        self.versions.append((self.clock.now(), data))
        return True

    # --- what can happen -----------------------------------------------------------------------------------------

    @rule(data=DATA, which=st.sampled_from(["current", "current", "earlier", "none"]))
    def push(self, data: dict[str, Any], which: str) -> None:
        base, current = self.base(which), self.hash()
        answer = self.there.ask("POST", "/push/members", {"data": data, "baseHash": base})
        if self.accept(base, data):
            assert answer.json == {"hash": digest(data), "timestamp": self.clock.now()}
        else:
            assert (answer.status, answer.json) == (409, {"error": "hash_mismatch", "currentHash": current})

    @rule(datas=st.lists(DATA, min_size=2, max_size=4), which=st.sampled_from(["current", "none"]))
    def push_at_once(self, datas: list[dict[str, Any]], which: str) -> None:
        """Several clients replace the same version, before any of their versions is durable."""
        documents = self.there.context.regular_documents
        path = self.there.context.collections.namespaces[""].resolve("members", "write")
        base, outcomes = self.base(which), list[tuple[bool, VersionPushed | CollectionError]]()
        for data in datas:
            prepared = prepare_push(path, data, canonical(data), (None, None), base, None)
            accepted = self.accept(base, data)
            try:
                outcomes.append((accepted, documents.push_from_disk(prepared, self.clock.now())))
            except CollectionError as error:
                outcomes.append((accepted, error))
        for accepted, outcome in outcomes:
            if isinstance(outcome, VersionPushed):
                try:
                    outcome.wait()
                except CollectionError as error:
                    outcome = error
            assert isinstance(outcome, VersionPushed) is accepted
            assert accepted or (isinstance(outcome, CollectionError) and outcome.code == "hash_mismatch")

    @rule(ms=st.integers(0, 12))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule()
    def seal(self) -> None:
        self.there.engine.seal()

    @rule()
    def restart(self) -> None:
        self.there.__exit__(None, None, None)
        self.open()

    # --- what must be so -----------------------------------------------------------------------------------------

    @invariant()
    def the_last_version_is_the_document(self) -> None:
        if self.server is None:
            return
        shown = parse(self.server.pull("members", "").body)
        hidden = self.expired() or not self.versions
        data, hash = ({}, "") if hidden else (self.versions[-1][1], self.hash())
        assert (canonical(shown["data"]), shown["hash"]) == (canonical(data), hash)

    @invariant()
    def the_log_has_the_last_versions(self) -> None:
        log = None if self.server is None else self.server.engine.find("members")
        if log is not None:
            records = [(record.ts, canonical(parse(record.data))) for record in log.read(limit=1000)]
            assert records == [(ts, canonical(data)) for ts, data in self.versions[-self.most :]]


TestVersionModel = VersionModel.TestCase
TestVersionModel.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
