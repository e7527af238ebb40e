"""What the commands that work on Spark share: options, the session, progress, and errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from strandline.cli.output import open_console, put, say
from strandline.lake.status import Lag, PipelineProblem, RoundSummary, StageStatus, StageSummary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.lake.reporter import Reporter

EXIT_FAILED, EXIT_USAGE, EXIT_MISSING, EXIT_IN_USE = 1, 2, 3, 4

Data = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="A data directory, whether or not a server runs on it.")
]
Url = Annotated[str | None, typer.Option("--url", metavar="URL", help="A server.")]
Key = Annotated[
    str | None,
    typer.Option("--key", metavar="KEY", envvar="STRANDLINE_KEY", help="The server's key, if it asks for one."),
]
Cold = Annotated[str, typer.Option("--cold", metavar="URL", help="The cold tier of the data directory, if it has one.")]
Master = Annotated[
    str, typer.Option("--master", metavar="URL", help="Where Spark runs: local[*], local[N], spark://host:port …")
]
Remote = Annotated[str | None, typer.Option("--remote", metavar="URL", help="Spark Connect instead: sc://host:port.")]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark. Can be given more than once."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the outcome as one JSON object.")]


def check_directory(data: Path | None) -> str:
    """The path, or nothing. Raises BadParameter if there is no such directory."""
    if data is not None and not data.is_dir():
        raise typer.BadParameter(f"{data} is not a directory", param_hint="--data")
    return "" if data is None else str(data)


@contextmanager
def session(master: str, remote: str | None, conf: dict[str, str], name: str) -> Iterator[SparkSession]:
    """The session of this process, if it has one already; else one of its own. Raises SparkUnavailable."""
    from strandline.pipeline.spark_session import close_session, open_session, what_is_missing

    shared = None if what_is_missing(remote or master) else _active()
    spark = shared or open_session(master, remote, conf, name)
    try:
        yield spark
    finally:
        if shared is None:
            close_session(spark)


def _active() -> SparkSession | None:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


@contextmanager
def progress() -> Iterator[Lines | Bars]:
    """Progress on standard error: bars at a terminal, lines elsewhere."""
    console = open_console(stderr=True)
    watch = Bars(console) if console.is_terminal else Lines()
    try:
        yield watch
    finally:
        watch.close()


@contextmanager
def watching() -> Iterator[Reporter]:
    """A reporter that shows progress and stores no status."""
    from strandline.engine.clock import SystemClock
    from strandline.lake.reporter import StatusReporter

    with progress() as watch:
        yield StatusReporter(lambda status: None, SystemClock().now, watch=watch)


@contextmanager
def errors(failed: int = EXIT_FAILED) -> Iterator[None]:
    """What goes wrong on purpose is a line on standard error, and an exit code; ``failed`` for whatever has none of its
    own."""
    from deltalake.exceptions import DeltaError
    from obstore.exceptions import BaseError

    from strandline.client.errors import BadUrl, StrandlineError
    from strandline.engine.errors import EngineError
    from strandline.lake.fence import LakeInUse, LakeOfAnother
    from strandline.lake.reporter import describe
    from strandline.pipeline.round import UnknownLogs
    from strandline.pipeline.spark_session import SparkUnavailable

    try:
        yield
    except SparkUnavailable as error:
        say(str(error))
        raise typer.Exit(EXIT_MISSING) from None
    except (UnknownLogs, BadUrl) as error:
        say(str(error))
        raise typer.Exit(EXIT_USAGE) from None
    except LakeInUse as error:
        say(str(error))
        raise typer.Exit(EXIT_IN_USE) from None
    except (EngineError, StrandlineError, LakeOfAnother, OSError) as error:
        say(str(error))
        raise typer.Exit(failed) from None
    except (DeltaError, BaseError) as error:
        # What follows is how the library came to it.
        say(str(error).splitlines()[0])
        raise typer.Exit(failed) from None
    except Exception as error:
        if not is_spark_error(error):
            raise
        # Its own words bring pages of Java along, and Spark has said them already.
        say(describe(error))
        raise typer.Exit(failed) from None


def is_spark_error(error: Exception) -> bool:
    # Where it is not loaded, or not even installed, nothing of it can have been raised.
    spark_errors = sys.modules.get("pyspark.errors")
    return spark_errors is not None and isinstance(error, spark_errors.PySparkException)


# --- progress -------------------------------------------------------------------------------------------------------


def describe_stage(stage: StageSummary) -> str:
    size = f", {decimal(stage.bytes)}" if stage.bytes else ""
    return f"{stage.stage}: {stage.records:,} records{size} in {stage.seconds:.1f} s ({stage.rate:,.0f}/s)"


def describe_round(summary: RoundSummary, lag: Lag) -> str:
    seconds = (summary.end - summary.begin) / 1000
    outcome = f"failed: {summary.error}" if summary.error else "stopped" if summary.stopped else "done"
    return f"round {outcome} after {seconds:.1f} s; {lag.behind:,} of {lag.heads:,} records of {lag.logs:,} logs behind"


def describe_problem(problem: PipelineProblem) -> str:
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

    def problem(self, problem: PipelineProblem) -> None:
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

    def problem(self, problem: PipelineProblem) -> None:
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
