"""What the lake has of a log, and what of that must not be shown as it is: what erasures have changed since.

The table is opened once and read as it was then. How far it had come is looked at before, so what it says of itself is
never more than what it has. What was erased, hidden, restored or amended since the lake last followed is found by the
same rules that the pipeline goes by, and comes from the log instead, as far as the log still shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.history.log_info import LogInfo
from strandline.history.source import History
from strandline.lake.layout import records
from strandline.lake.location import Lake
from strandline.lake.registries import Layer
from strandline.pipeline.erasure_rules import AMENDED, RESTORED, Rules, rules_of
from strandline.pipeline.events import PROGRESS, Events, EventsMissed
from strandline.pipeline.frames import layers_of

_KEYED = ("epoch", "seq", "key")


class Covered(NamedTuple):
    """The records of an epoch from ``first`` up to ``last`` are in the lake, if they are anywhere."""

    epoch: int
    first: int
    last: int


class Kept(NamedTuple):
    """What of a log comes from the lake: ``covered`` without ``left_out`` (seqs by epoch). The rest comes from the log:
    what is behind, ``missing`` (ranges of seqs), and of ``renewed`` what the rules mean."""

    covered: list[Covered]
    left_out: dict[int, Any]
    missing: list[tuple[int, int]]
    renewed: list[Covered]
    rules: Rules

    def is_renewed(self, epoch: int, batch: Any) -> Any:
        """Which rows of a batch of the history the lake has in an older form, or not at all."""
        seqs = batch.column("seq").to_numpy()
        return self.rules.renewed(np.full(len(seqs), epoch, np.int64), seqs, batch.column("key"))


class LakeView:
    """The table of records at one moment."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        table = records(lake)
        self._progress = table.progress()
        self.exists = bool(self._progress)
        self._opened = table.open() if self.exists else None
        #: As Arrow reads it: only columns and files that are asked for. None if nothing was ever committed.
        self.dataset: Any = None if self._opened is None else self._opened.to_pyarrow_dataset()

    def is_whole(self) -> bool:
        """Whether all files are there still: what was erased is removed under whoever reads an earlier version."""
        if self._opened is None:
            return True
        paths = pa.table(self._opened.get_add_actions()).column("path").to_pylist()
        return all(self._lake.state(f"records/{path}") is not None for path in paths)

    def kept(self, history: History, info: LogInfo, events: Events) -> Kept:
        """What of a log can be taken from here."""
        layers = layers_of(info, {} if info.base is None else {each.epoch: each for each in history.logs()})
        covered, missing = self._ranges(info, layers)
        try:
            found = [event.erasure for event in events.after(self._progress.get(PROGRESS, 0))]
        except EventsMissed:
            # Nobody can say what became of records that the log has or had; below its floor the lake knows best.
            covered = [each._replace(last=min(each.last, info.floor - 1)) for each in covered]
            return Kept(covered, {}, [(info.floor, info.head)], [], Rules({}))
        rules = self._rules(history, info, found, covered)
        left_out = self._left_out(covered, rules) if rules.of else {}
        return Kept(covered, left_out, missing, _renewed(covered, rules), rules)

    def _ranges(self, info: LogInfo, layers: list[Layer]) -> tuple[list[Covered], list[tuple[int, int]]]:
        covered, missing = [], []
        for layer in layers:
            last = info.head if layer.last is None else layer.last
            reached = min(self._progress.get(str(layer.epoch), 0), last) if self.exists else 0
            if reached >= layer.first:
                covered.append(Covered(layer.epoch, layer.first, reached))
            if reached < last:
                missing.append((max(layer.first, reached + 1), last))
        return covered, missing

    def _rules(self, history: History, info: LogInfo, found: list[Any], covered: list[Covered]) -> Rules:
        of = rules_of(found, {each.epoch for each in covered})
        is_restored = any(rule.kind == RESTORED for rules in of.values() for rule in rules)
        return Rules(of, dict.fromkeys(of, history.standing(info)) if is_restored else {})

    def _left_out(self, covered: list[Covered], rules: Rules) -> dict[int, Any]:
        """The seqs of the lake's rows that are not to be shown, by epoch."""
        found: dict[int, list[Any]] = {each.epoch: [] for each in covered if each.epoch in rules.of}
        condition = pc.field("epoch").isin(list(found))
        for batch in self.dataset.to_batches(columns=list(_KEYED), filter=condition):
            epochs, seqs = (batch.column(name).to_numpy() for name in ("epoch", "seq"))
            erased = rules.erased(epochs, seqs, batch.column("key").cast(pa.string()))
            for epoch, parts in found.items():
                parts.append(seqs[erased & (epochs == epoch)])
        return {epoch: np.concatenate(parts) for epoch, parts in found.items() if any(len(part) for part in parts)}


def _renewed(covered: list[Covered], rules: Rules) -> list[Covered]:
    """Where in the log records are that came back or were changed: those that the lake may have otherwise."""
    found = []
    for each in covered:
        bounds = [rule.bounds for rule in rules.of.get(each.epoch, ()) if rule.kind in (RESTORED, AMENDED)]
        if bounds:
            first = max(min(low for low, _ in bounds), each.first)
            last = min(max(high for _, high in bounds), each.last)
            if first <= last:
                found.append(Covered(each.epoch, first, last))
    return found


def left_out_table(left_out: Mapping[int, Any]) -> Any:
    """As a table of epochs and seqs."""
    epochs = [np.full(len(seqs), epoch, np.int64) for epoch, seqs in left_out.items()]
    seqs = [np.asarray(each, np.int64) for each in left_out.values()]
    return pa.table({"epoch": np.concatenate(epochs), "seq": np.concatenate(seqs)})
