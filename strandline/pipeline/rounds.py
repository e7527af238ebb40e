"""One round of the pipeline: whatever was acknowledged when it began is in the lake when it has ended.

Stages come one after the other, and each is true to the tables alone: what a table has is what its last commit says.
So a round can end anywhere, by a crash or by an error, and the next one goes on from there; nothing is missing and
nothing is there twice.

What a round does about trouble:

- Something that concerns one log (a damaged block, a missing object, a log that ends before what the lake has of it) is
  told as a problem, with the log and the seq. The log stays as it is in the lake, and the others go on.
- A table that another engine has changed meanwhile makes the round plan again, from the beginning.
- Another driver that has taken the lake over ends the round with LakeInUse, so that it does not disturb that driver.
- Something that concerns everything (a full disk, a server or a Spark that is gone, a lake that cannot be written, a
  file of the lake that is missing) ends the round with an error. What was committed stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from strandline.history.log_info import LogInfo
from strandline.history.source import History
from strandline.lake.claim import LakeInUse
from strandline.lake.fence import Fence, take_fence
from strandline.lake.location import Lake
from strandline.lake.status import LogLag
from strandline.lake.table import Table, TableMoved
from strandline.pipeline import erasures, keys, records, table_upkeep
from strandline.pipeline.companions import stage as companions
from strandline.pipeline.events import PROGRESS, Events
from strandline.pipeline.frames import keep_registries
from strandline.pipeline.round import EVERYTHING, KEEPING, Chosen, Keeping, Round, wall_clock
from strandline.pipeline.status import Reporter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Chosen", "Keeping", "LakeOfAnother", "Round", "RoundResult", "UnknownLogs", "run_round"]

log = logging.getLogger(__name__)

#: A round is planned so often if other engines change the tables under it.
ATTEMPTS = 5

#: In the lake: which data directory its records are from.
BELONGING = "lake.json"
FORMAT = 1


class LakeOfAnother(Exception):
    """The lake has the records of another data directory, or is of a format that is not known here."""


class UnknownLogs(Exception):
    """Logs were named that do not exist."""


class Belonging(msgspec.Struct, frozen=True):
    directory: str
    format: int = FORMAT


class RoundResult(msgspec.Struct, frozen=True):
    """``records`` by stage; ``problems`` is how many were told."""

    records: dict[str, int]
    problems: int


def run_round(
    spark: SparkSession,
    history: History,
    lake: Lake,
    reporter: Reporter,
    chosen: Chosen = EVERYTHING,
    *,
    complete: bool = True,
    keeping: Keeping = KEEPING,
    now: Callable[[], int] = wall_clock,
    fence: Fence | None = None,
) -> RoundResult:
    """Raises LakeOfAnother or UnknownLogs before anything is done, LakeInUse if another driver takes the lake over, and
    whatever ends a round.

    With ``complete`` false, work that is cheaper when more has gathered may be left for a later round. A driver that
    makes several rounds has one ``fence`` for all of them; without one, the round takes its own.
    """
    if fence is None:
        with take_fence(lake, now) as fence:
            return run_round(
                spark, history, lake, reporter, chosen, complete=complete, keeping=keeping, now=now, fence=fence
            )
    fence.check()
    belong(lake, history.directory)
    events = Events(history)
    every = [info for info in history.logs() if not (info.name.startswith("__") or info.ephemeral)]
    logs = choose(every, chosen)
    round = Round(spark, history, lake, reporter, logs, every, events, complete, keeping, now, fence=fence)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _run_stages(round)
            break
        except TableMoved as moved:
            # Another engine has changed a table, to optimize it for instance. Every stage begins with what the tables
            # say, so the round is simply planned again.
            log.info("the round is planned again: %s", moved)
            if attempt == ATTEMPTS:
                raise LakeInUse(f"the round was planned {ATTEMPTS} times, and each time {moved}") from moved
    return RoundResult(round.done, round.problems)


def _run_stages(round: Round) -> None:
    keep_registries(round.lake, round.all_logs, round.now())
    records.run(round)
    # Before what is made of the records, so that nothing is made of one that is erased.
    erasures.run(round)
    keys.run(round)
    searched = companions.run(round)
    table_upkeep.run(round)
    _report_lag(round, searched)


def belong(lake: Lake, directory: str) -> None:
    """Make sure that the lake is of this data directory. Raises LakeOfAnother."""
    if not belongs(lake, directory):
        lake.write(BELONGING, msgspec.json.encode(Belonging(directory)))


def belongs(lake: Lake, directory: str) -> bool:
    """Whether there is a lake, which then is of this data directory. Raises LakeOfAnother."""
    stored = lake.read(BELONGING)
    if stored is None:
        return False
    try:
        found = msgspec.json.decode(stored, type=Belonging)
    except msgspec.DecodeError as error:
        raise LakeOfAnother(f"{lake.place_of(BELONGING)} cannot be understood: {error}") from None
    if found.format != FORMAT:
        raise LakeOfAnother(f"the lake at {lake.url} has format {found.format}, known is {FORMAT}")
    if found.directory != directory:
        raise LakeOfAnother(
            f"the lake at {lake.url} has the records of the data directory {found.directory}, not of {directory}"
        )
    return True


def choose(logs: list[LogInfo], chosen: Chosen) -> list[LogInfo]:
    """Raises UnknownLogs if one is named that is not there."""
    missing = set(chosen.logs) - {info.name for info in logs}
    if missing:
        raise UnknownLogs(f"there are no such logs: {', '.join(sorted(missing))}")
    if chosen.logs:
        logs = [info for info in logs if info.name in set(chosen.logs)]
    return [info for info in logs if info.name.startswith(chosen.prefix)]


def _report_lag(round: Round, searched: Mapping[int, int]) -> None:
    """``searched``: up to which seq there are companions, of logs that have some."""
    progress = {name: Table(round.lake, name, None).progress() for name in ("records", "latest", "keys")}
    lags = []
    for info in round.all_logs:
        covered = {name: max(each.get(str(info.epoch), 0), info.own_after) for name, each in progress.items()}
        if info.epoch in searched:
            covered["companions"] = searched[info.epoch]
        lags.append(LogLag(log=info.name, epoch=info.epoch, head=info.head, covered=covered))
    followed = [each[PROGRESS] for each in progress.values() if PROGRESS in each]
    round.reporter.lag(lags, min(followed, default=round.events.head))
