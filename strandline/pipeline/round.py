"""A round of the pipeline in progress: the state that its stages share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
from strandline.pipeline.chosen_logs import wall_clock
from strandline.pipeline.tasks import SparkWorkers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FileRetention(msgspec.Struct, frozen=True):
    """How long unused files are kept, in seconds."""

    #: Replaced versions of the tables, for readers that still use them and for time travel.
    versions: int = 2 * 86_400
    #: Files that no version references: left by a killed task, or being written.
    orphans: int = 86_400


FILE_RETENTION = FileRetention()


@dataclass(eq=False)
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
    def workers(self) -> SparkWorkers:
        return SparkWorkers(self.spark)
