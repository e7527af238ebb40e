"""A round of the pipeline that is under way: what its stages share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from strandline.history.log_info import LogInfo
from strandline.history.source import History
from strandline.lake.erasures import ErasureEvents
from strandline.lake.fence import Fence
from strandline.lake.location import Lake
from strandline.lake.reporter import Reporter
from strandline.pipeline.tasks import parallelism

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class UnknownLogs(Exception):
    """Logs were named that do not exist."""


class Chosen(msgspec.Struct, frozen=True):
    """Which logs: these, those with the prefix, or all. Those that the server keeps for itself are never among them."""

    logs: Sequence[str] = ()
    prefix: str = ""


class FileRetention(msgspec.Struct, frozen=True):
    """How long something is kept that no table has any more, in seconds."""

    #: Versions of the tables that were replaced: for readers that are still at them, and for looking back.
    versions: int = 2 * 86_400
    #: Files that no version refers to: what a killed task has left, or what one is writing just now.
    orphans: int = 86_400


EVERYTHING = Chosen()
FILE_RETENTION = FileRetention()


def choose(logs: list[LogInfo], chosen: Chosen) -> list[LogInfo]:
    """Raises UnknownLogs if one is named that is not there."""
    missing = set(chosen.logs) - {info.name for info in logs}
    if missing:
        raise UnknownLogs(f"logs not found: {', '.join(sorted(missing))}")
    if chosen.logs:
        logs = [info for info in logs if info.name in set(chosen.logs)]
    return [info for info in logs if info.name.startswith(chosen.prefix)]


def wall_clock() -> int:
    return int(time.time() * 1000)


@dataclass
class Round:
    """``logs`` are those that were chosen, by name, as they were when the round began; ``all_logs`` are all that a lake
    can have. A ``complete`` round leaves nothing for later that would be cheaper to do together with more.
    """

    spark: SparkSession
    history: History
    lake: Lake
    reporter: Reporter
    logs: list[LogInfo]
    all_logs: list[LogInfo]
    events: ErasureEvents
    complete: bool = True
    keeping: FileRetention = FILE_RETENTION
    now: Callable[[], int] = wall_clock
    problems: int = 0
    #: Records by stage.
    done: dict[str, int] = field(default_factory=dict)
    #: What keeps other drivers out; None where there cannot be another.
    fence: Fence | None = None

    def remove(self, names: Iterable[str]) -> None:
        """Remove files that no table refers to. Raises LakeInUse if another driver has taken the lake over: they may
        be about to become part of a table."""
        if self.fence is not None:
            self.fence.remove(names)
        else:
            self.lake.remove(names)

    def problem(self, stage: str, log: str | None, seq: int | None, message: str) -> None:
        """Tell of something that does not end the round."""
        self.problems += 1
        self.reporter.problem(stage, log, seq, message)

    @cached_property
    def parallelism(self) -> int:
        """How many tasks can run at a time."""
        return parallelism(self.spark)
