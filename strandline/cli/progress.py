"""Progress of the pipeline on standard error: bars for people, lines for everybody else."""

from __future__ import annotations

import sys
from contextlib import suppress

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from strandline.cli.output import open_console, put
from strandline.lake.status import Lag, Problem, RoundSummary, StageStatus, StageSummary


def describe_stage(stage: StageSummary) -> str:
    size = f", {decimal(stage.bytes)}" if stage.bytes else ""
    return f"{stage.stage}: {stage.records:,} records{size} in {stage.seconds:.1f} s ({stage.rate:,.0f}/s)"


def describe_round(summary: RoundSummary, lag: Lag) -> str:
    seconds = (summary.end - summary.begin) / 1000
    outcome = f"failed: {summary.error}" if summary.error else "stopped" if summary.stopped else "done"
    return f"round {outcome} after {seconds:.1f} s; {lag.behind:,} of {lag.heads:,} records of {lag.logs:,} logs behind"


def describe_problem(problem: Problem) -> str:
    place = "" if problem.log is None else f" {problem.log}" + ("" if problem.seq is None else f" at {problem.seq}")
    return f"problem in {problem.stage}{place}: {problem.message}"


class Lines:
    """A line whenever something is over. Rounds in which there was nothing to do are passed over in silence."""

    def began(self, stage: StageStatus) -> None:
        pass

    def advanced(self, stage: StageStatus) -> None:
        pass

    def ended(self, stage: StageSummary) -> None:
        if stage.records:
            self._say(describe_stage(stage))

    def problem(self, problem: Problem) -> None:
        self._say(describe_problem(problem))

    def round_ended(self, summary: RoundSummary, lag: Lag) -> None:
        if not summary.good or any(stage.records for stage in summary.stages):
            self._say(describe_round(summary, lag))

    def close(self) -> None:
        pass

    def _say(self, text: str) -> None:
        with suppress(OSError):  # whoever listened is gone; what is under way comes to its end all the same
            put(text, file=sys.stderr, flush=True)


class Bars:
    """A bar per stage of the round that is under way; what is over stays as a line."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<12}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:>12}"),
            TextColumn("{task.fields[size]:>10}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._tasks: dict[int, TaskID] = {}
        self._progress.start()

    def began(self, stage: StageStatus) -> None:
        task = self._progress.add_task(escape(stage.stage), total=stage.total, rate="", size="")
        self._tasks[id(stage)] = task

    def advanced(self, stage: StageStatus) -> None:
        self._progress.update(
            self._tasks[id(stage)],
            completed=stage.records,
            rate=f"{stage.rate:,.0f}/s",
            size=decimal(stage.bytes) if stage.bytes else "",
        )

    def ended(self, stage: StageSummary) -> None:
        if stage.records:
            self._progress.console.print(f"  {escape(describe_stage(stage))}", style="dim", highlight=False)

    def problem(self, problem: Problem) -> None:
        self._progress.console.print(escape(describe_problem(problem)), style="red", highlight=False)

    def round_ended(self, summary: RoundSummary, lag: Lag) -> None:
        for task in self._tasks.values():
            self._progress.remove_task(task)
        self._tasks = {}
        if not summary.good or any(stage.records for stage in summary.stages):
            style = "green" if summary.good else "red"
            self._progress.console.print(escape(describe_round(summary, lag)), style=style, highlight=False)

    def close(self) -> None:
        self._progress.stop()


def make_watch() -> Lines | Bars:
    console = open_console(stderr=True)
    return Bars(console) if console.is_terminal else Lines()
