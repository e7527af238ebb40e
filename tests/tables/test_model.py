"""A table against a model that is as plain as can be: a dict of rows per parent."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from support.tables_in_process import Bed, Vote

from strandline.tables import Item, TableError, Write, make_log

PARENTS = ("r", "s")
OWNER = "owner"
USERS = (None, OWNER, "u", "v")
OPTIONS = st.integers(0, 3)
WORDS = ("red", "green", "blue")


def room(name: str) -> dict[str, str]:
    return {"userId": OWNER}


VOTE = make_log("vote", parent="room", schema=Vote, soft_delete=True, search=True, pub=True, parent_row=room)


@dataclass
class ModelRow:
    option: int
    comment: str
    user: str | None
    key: str | None
    hidden: bool = False
    edits: list[int] = field(default_factory=list)


@dataclass
class Model:
    rows: dict[int, ModelRow] = field(default_factory=dict)
    last: int = 0

    def key(self, key: str | None) -> int | None:
        return next((seq for seq, row in self.rows.items() if key is not None and row.key == key), None)

    def append(self, row: ModelRow) -> tuple[int, bool]:
        found = self.key(row.key)
        if found is not None:
            return found, False
        self.last += 1
        self.rows[self.last] = row
        return self.last, True

    def seen(self) -> dict[int, ModelRow]:
        return {seq: row for seq, row in self.rows.items() if not row.hidden}


class TableMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.bed = Bed(Path(self.directory.name) / "data")
        self.table = self.bed.bind(VOTE)["vote"]
        self.models = {parent: Model() for parent in PARENTS}
        self.waiting: list[tuple[Write[Any], Any]] = []

    def teardown(self) -> None:
        self.bed.close()
        self.directory.cleanup()

    def later(self, write: Write[Any], expected: Any) -> None:
        self.waiting.append((write, expected))

    parents = st.sampled_from(PARENTS)
    users = st.sampled_from(USERS)
    keys = st.none() | st.sampled_from(["k", "l", "m"])
    seqs = st.integers(1, 8)
    comments = st.lists(st.sampled_from(WORDS), max_size=2).map(" ".join)

    @rule(parent=parents, option=OPTIONS, comment=comments, user=users, key=keys)
    def append(self, parent: str, option: int, comment: str, user: str | None, key: str | None) -> None:
        write = self.table.append(parent, Vote(option, comment=comment), user=user, idempotency_key=key)
        seq, created = self.models[parent].append(ModelRow(option, comment, user, key))
        self.later(write, {"seq": seq, "created": created, "id": f"{parent}:{seq}"})

    @rule(parent=parents, items=st.lists(st.tuples(OPTIONS, keys), min_size=1, max_size=4))
    def append_bulk(self, parent: str, items: list[tuple[int, str | None]]) -> None:
        write = self.table.append_bulk(parent, [Item(Vote(option), key) for option, key in items])
        made = [self.models[parent].append(ModelRow(option, "", None, key)) for option, key in items]
        results = [{"seq": seq, "created": created, "id": f"{parent}:{seq}"} for seq, created in made]
        self.later(write, {"count": sum(created for _, created in made), "results": results})

    def was_refused(self, error: TableError, code: str, rightly: bool) -> None:
        assert (error.code, rightly) == (code, True)

    def may_change(self, row: ModelRow, user: str | None) -> bool:
        return user in (None, OWNER, row.user)

    @rule(parent=parents, seq=seqs, option=OPTIONS, user=users)
    def update(self, parent: str, seq: int, option: int, user: str | None) -> None:
        row = self.models[parent].seen().get(seq)
        try:
            write = self.table.update(f"{parent}:{seq}", {"optionIdx": option}, user=user)
        except TableError as error:
            code = "NOT_FOUND" if row is None else "FORBIDDEN"
            self.was_refused(error, code, row is None or not self.may_change(row, user))
            return
        assert row is not None
        assert self.may_change(row, user)
        row.edits.append(row.option)
        row.option = option
        self.later(write, None)

    @rule(parent=parents, seq=seqs, user=users, hard=st.booleans())
    def rm(self, parent: str, seq: int, user: str | None, hard: bool) -> None:
        model = self.models[parent]
        row = model.rows.get(seq)
        gone = row is None or (row.hidden and not hard)
        try:
            write = self.table.rm(f"{parent}:{seq}", user=user, hard=hard)
        except TableError as error:
            self.was_refused(error, "FORBIDDEN", row is not None and not self.may_change(row, user))
            return
        self.later(write, {"deleted": not gone, "id": f"{parent}:{seq}", "soft": not hard})
        if row is not None and not gone:
            assert self.may_change(row, user)
            if hard:
                del model.rows[seq]
            row.hidden = True

    @rule(parent=parents, hard=st.booleans())
    def purge(self, parent: str, hard: bool) -> None:
        model = self.models[parent]
        count = len(model.rows) if hard else len(model.seen())
        self.later(self.table.purge_by_parent(parent, hard=hard), {"deleted": count, "soft": not hard})
        if hard:
            model.rows.clear()
        for row in model.rows.values():
            row.hidden = True

    @rule(parent=parents)
    def restore_all(self, parent: str) -> None:
        model = self.models[parent]
        count = len(model.rows) - len(model.seen())
        self.later(self.table.restore_by_parent(parent), {"restored": count})
        for row in model.rows.values():
            row.hidden = False

    @rule(parent=parents, seq=seqs)
    def restore(self, parent: str, seq: int) -> None:
        row = self.models[parent].rows.get(seq)
        try:
            write = self.table.restore(f"{parent}:{seq}")
        except TableError as error:
            self.was_refused(error, "NOT_FOUND", row is None or not row.hidden)
            return
        assert row is not None
        row.hidden = False
        self.later(write, None)

    @rule()
    def seal(self) -> None:
        self.bed.engine.seal()

    @rule()
    def reopen(self) -> None:
        self.table = self.bed.reopen(VOTE)["vote"]

    @rule(parent=parents, user=st.sampled_from(USERS), public=st.booleans(), limit=st.integers(1, 4))
    def everything_reads_as_the_model_says(self, parent: str, user: str | None, public: bool, limit: int) -> None:
        self.flush()
        table, model = self.table, self.models[parent]
        sees_all = public or user in (None, OWNER)
        seen = {seq: row for seq, row in model.seen().items() if sees_all or row.user == user}
        who: Any = {"user": user, "public": public}
        listed, cursor, is_done = [], None, False
        while not is_done:
            page = table.list(parent, limit=limit, cursor=cursor, **who)
            listed += page.rows
            cursor, is_done = page.cursor, page.is_done
        assert [(row.seq, row.payload["optionIdx"], row.user, row.idempotency_key) for row in listed] == [
            (seq, row.option, row.user, row.key) for seq, row in sorted(seen.items(), reverse=True)
        ]
        assert [row.seq for row in table.list_after(parent, 2, **who).rows] == sorted(seq for seq in seen if seq > 2)
        counts = table.counts(parent, "optionIdx", **who)
        assert counts.counts == Counter(str(row.option) for row in seen.values())
        groups = table.indexed(parent, "optionIdx", limit=limit, **who)
        for option in range(4):
            expected = sorted((seq for seq, row in seen.items() if row.option == option), reverse=True)[:limit]
            assert [row.seq for row in groups.get(str(option), [])] == expected
        found = table.search(parent, "red", **who)
        assert found.complete
        red = [seq for seq, row in seen.items() if "red" in row.comment]
        assert [row.seq for row in found.rows] == sorted(red, reverse=True)
        for seq, row in seen.items():
            assert [edit.previous["optionIdx"] for edit in table.history(f"{parent}:{seq}", **who)] == row.edits

    def flush(self) -> None:
        for write, expected in self.waiting:
            result = write.wait()
            assert expected is None or msgspec.to_builtins(result) == expected
        self.waiting.clear()

    @rule()
    def wait(self) -> None:
        self.flush()

    @invariant()
    def not_too_many_wait(self) -> None:
        if len(self.waiting) > 20:
            self.flush()


def test_a_table_does_what_the_model_does() -> None:
    patient = settings(max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(TableMachine, settings=patient)
