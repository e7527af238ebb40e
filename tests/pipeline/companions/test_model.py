"""Random operations and rounds, some of which end in the middle, against what the log says."""

from __future__ import annotations

import random
from collections import Counter
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.companion_rounds import Bed, document
from support.local_tasks import work_here
from support.searched_log import DECLARED

from strandline.history.directory import DirectoryHistory
from strandline.pipeline.companions import stage, tables
from strandline.pipeline.companions.plan import counted, wish_of
from strandline.pipeline.companions.tables import CompanionTable

OTHER_ROLLUPS = deepcopy(DECLARED)
OTHER_ROLLUPS["rollups"]["requests"]["intervals"] = ["1s"]
OTHER_FIELDS = deepcopy(DECLARED)
del OTHER_FIELDS["fields"]["title"]


class PowerCut(BaseException):
    pass


class Fuse:
    """Blows at the n-th commit of any table."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left = 0
        table = stage.CompanionTable, "change"
        rolled = tables.Rollups, "_commit"
        for owner, name in (table, rolled):
            patch.setattr(owner, name, self._fused(getattr(owner, name)))

    def _fused(self, function: Any) -> Any:
        def called(*arguments: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                raise PowerCut
            return function(*arguments, **named)

        return called


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_the_next_round_has_it_right(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work_here(monkeypatch, wave=8)
    monkeypatch.setattr(stage, "MAX_SPARSE_FILES", 4)
    chance = random.Random(seed)
    fuse = Fuse(monkeypatch)
    bed = Bed(tmp_path)
    bed.create()
    bed.fill(1, 5)
    for _ in range(12):
        operate(bed, chance)
        fuse.left = chance.choice([0, 0, 1, 2, 3])
        try:
            bed.round(rows=chance.choice([4, 16, 1000]), complete=chance.random() < 0.7)
        except PowerCut:
            check_nothing_twice(bed)
    fuse.left = 0
    bed.round()
    with bed.engine() as engine:
        page = engine.log("log").read(0, 10_000)
    assert bed.seqs() == page.seqs
    services = Counter(msgspec.json.decode(data)["service"] for data in page.data)
    assert {service: bed.counts(service=service) for service in services} == services
    assert bed.counts() == len(page.seqs)
    assert not bed.problems


def operate(bed: Bed, chance: random.Random) -> None:
    kind = chance.choice(["append", "append", "append", "delete", "hide", "restore", "amend", "configure", "nothing"])
    if kind == "configure":
        bed.reconfigure(chance.choice([DECLARED, OTHER_ROLLUPS, OTHER_FIELDS]))
        return
    with bed.engine() as engine:
        log = engine.log("log")
        seqs = log.read(0, 10_000).seqs
        chosen = chance.sample(seqs, min(len(seqs), 3))
        selection = chance.choice([{"seqs": chosen}, {"key": chance.choice("ab")}, {"before": chance.randint(1, 9)}])
    if kind == "append":
        count = chance.randint(1, 9)
        bed.append(*map(document, range(count)), keys=[chance.choice("ab") for _ in range(count)])
    elif kind in ("delete", "hide", "restore") and chosen:
        with bed.engine() as engine:
            getattr(engine.log("log"), kind)(**selection).wait()
    elif kind == "amend" and chosen:
        with bed.engine() as engine:
            engine.log("log").amend(chosen[0], msgspec.json.encode(document(1, service="other"))).wait()


def check_nothing_twice(bed: Bed) -> None:
    """What the tables say after a crash is what a round has left at some time: nothing overlaps."""
    history = DirectoryHistory(bed.root / "data")
    try:
        wish = wish_of(history.log("log"))
    finally:
        history.close()
    table = CompanionTable(bed.lake)
    line = counted(table.entries, wish)
    for before, behind in pairwise(line):
        assert behind.info.first == before.info.last + 1
    if tables.rollups_table(bed.lake).exists:
        ranges = sorted(set(bed.rollups().select("first", "last").iter_rows()))
        for (_, last), (first, _) in pairwise(ranges):
            assert first > last
