"""A round of the pipeline in progress: the state that its stages share."""

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
    """Named logs do not exist."""


class Chosen(msgspec.Struct, frozen=True):
    """Which logs to process: the named ones, those with the prefix, or all. Internal logs are never included."""

    logs: Sequence[str] = ()
    prefix: str = ""


class FileRetention(msgspec.Struct, frozen=True):
    """How long unused files are kept, in seconds."""

    #: Replaced versions of the tables, for readers that still use them and for time travel.
    versions: int = 2 * 86_400
    #: Files that no version references: left by a killed task, or being written.
    orphans: int = 86_400


EVERYTHING = Chosen()
FILE_RETENTION = FileRetention()


def choose(logs: list[LogInfo], chosen: Chosen) -> list[LogInfo]:
    """Raises UnknownLogs if a named log does not exist."""
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
    """``logs`` are the chosen logs, by name, as they were when the round started; ``all_logs`` are all logs that a lake
    can have. A ``complete`` round does not postpone work that would be cheaper together with more.
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
    #: Keeps other drivers out; None where there cannot be another.
    fence: Fence | None = None

    def remove(self, names: Iterable[str]) -> None:
        """Remove files that no table references. Raises LakeInUse if another driver has taken over the lake, because
        it may be about to commit them."""
        if self.fence is not None:
            self.fence.remove(names)
        else:
            self.lake.remove(names)

    def problem(self, stage: str, log: str | None, seq: int | None, message: str) -> None:
        """Report a problem that does not end the round."""
        self.problems += 1
        self.reporter.problem(stage, log, seq, message)

    @cached_property
    def parallelism(self) -> int:
        """The number of tasks that can run at the same time."""
        return parallelism(self.spark)
