"""What the commands that can use Spark share: where the logs are, the session, errors and progress."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from strandline.cli.output import counted, open_console, put, say
from strandline.lake.status import Lag, PipelineProblem, RoundSummary, StageStatus, StageSummary
from strandline.late_import import is_raised_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.history.source import History
    from strandline.lake.reporter import Reporter
    from strandline.pipeline.tasks import Workers

DEFAULT_MASTER = "local[*]"
EXIT_FAILED, EXIT_USAGE, EXIT_MISSING, EXIT_IN_USE = 1, 2, 3, 4


class LogSource(NamedTuple):
    """Where logs are read from: the path of a data directory, or the URL of a server."""

    path: str
    url: str
    api_key: str | None
    cold: str

    def __str__(self) -> str:
        return self.path or self.url

    @contextmanager
    def opened(self) -> Iterator[History]:
        from strandline.history.source import open_history

        history = open_history(path=self.path, url=self.url, key=self.api_key, cold_url=self.cold)
        try:
            yield history
        finally:
            history.close()


def log_source(data: Path | None, url: str | None, api_key: str | None, cold: str) -> LogSource:
    """The logs that --data or --url names. Raises BadParameter unless exactly one of them is given."""
    if (data is None) == (url is None):
        raise typer.BadParameter("specify either --data or --url")
    return LogSource(check_directory(data), url or "", api_key, cold)


def check_directory(data: Path | None) -> str:
    """The path, or an empty text. Raises BadParameter if it is not a directory."""
    if data is not None and not data.is_dir():
        raise typer.BadParameter(f"{data} is not a directory; expected a data directory", param_hint="--data")
    return "" if data is None else str(data)


def parse_conf(conf: list[str] | None) -> dict[str, str]:
    """Spark properties by name. Raises BadParameter."""
    properties: dict[str, str] = {}
    for one in conf or ():
        name, equals, value = one.partition("=")
        if not equals or not name.startswith("spark."):
            raise typer.BadParameter(f"{one!r} is not a Spark property; expected spark.name=value", param_hint="--conf")
        properties[name] = value
    return properties


def parse_pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    """Values by name, from ``name=value``. Raises BadParameter."""
    for text in texts or ():
        if "=" not in text:
            raise typer.BadParameter(f"{text!r} is not valid; expected name=value", param_hint=option)
    return dict(text.partition("=")[::2] for text in texts or ())


def with_jars(conf: dict[str, str], jars: list[str] | None, packages: list[str] | None) -> dict[str, str]:
    """The properties, with the jars and packages that Spark loads."""
    return {
        **conf,
        **({"spark.jars": ",".join(jars)} if jars else {}),
        **({"spark.jars.packages": ",".join(packages)} if packages else {}),
    }


class SparkOptions(NamedTuple):
    """The options of a command that can do without Spark. ``use`` is None if the user did not decide."""

    use: bool | None
    master: str | None
    remote: str | None
    conf: dict[str, str]

    def check(self) -> None:
        """Raises BadParameter."""
        if self.use is False and self.has_session_options:
            raise typer.BadParameter("--no-spark cannot be combined with options of Spark")

    def check_for_kafka(self, what: str) -> None:
        """Raises BadParameter."""
        if self.use is False:
            raise typer.BadParameter(f"{what} needs Spark: leave out --no-spark")
        if self.remote is not None or (self.master or "").startswith("sc://"):
            raise typer.BadParameter(
                f"{what} needs a Spark driver in this process, which Spark Connect does not have: use --master instead "
                "of --remote"
            )

    @property
    def has_session_options(self) -> bool:
        return self.master is not None or self.remote is not None or bool(self.conf)

    @property
    def is_wanted(self) -> bool:
        return self.use is True or self.has_session_options

    @property
    def is_cluster(self) -> bool:
        """Whether tasks may run on other machines."""
        return self.remote is not None or (self.master is not None and not self.master.startswith("local"))

    def session(self, name: str) -> AbstractContextManager[SparkSession]:
        return session(self.master or DEFAULT_MASTER, self.remote, self.conf, name)

    @contextmanager
    def workers(self, name: str, is_much: bool) -> Iterator[Workers]:
        """Workers on Spark if an option says so, or if there is much to do and Spark is installed; otherwise workers in
        this process. Raises SparkUnavailable."""
        from strandline.pipeline.spark_session import what_is_missing
        from strandline.pipeline.tasks import LocalWorkers, SparkWorkers

        if self.is_wanted or (is_much and self.use is None and not what_is_missing()):
            with self.session(name) as spark:
                yield SparkWorkers(spark)
        else:
            yield LocalWorkers()


@contextmanager
def session(master: str, remote: str | None, conf: dict[str, str], name: str) -> Iterator[SparkSession]:
    """The active session of this process, or a new one that is closed afterwards. Raises SparkUnavailable."""
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
    """Turn expected errors into a message on standard error and an exit code; ``failed`` is the code of errors that
    have no code of their own."""
    from obstore.exceptions import BaseError

    from strandline.client.errors import BadUrl, StrandlineError
    from strandline.engine.errors import EngineError
    from strandline.lake.reporter import TaskFailed, describe
    from strandline.pipeline.chosen_logs import UnknownLogs
    from strandline.pipeline.spark_session import SparkUnavailable

    try:
        yield
    except SparkUnavailable as error:
        say(str(error))
        raise typer.Exit(EXIT_MISSING) from None
    except (UnknownLogs, BadUrl) as error:
        say(str(error))
        raise typer.Exit(EXIT_USAGE) from None
    except (EngineError, StrandlineError, TaskFailed, OSError) as error:
        say(str(error))
        raise typer.Exit(failed) from None
    except BaseError as error:
        say(_first_line(error))
        raise typer.Exit(failed) from None
    except Exception as error:
        if is_raised_by("strandline.lake.fence", "LakeInUse", error):
            say(str(error))
            raise typer.Exit(EXIT_IN_USE) from None
        if is_raised_by("strandline.lake.fence", "LakeOfAnother", error) or is_raised_by(
            "strandline.pipeline.run", "TablesFailed", error
        ):
            say(str(error))
        elif is_raised_by("deltalake.exceptions", "DeltaError", error):
            say(_first_line(error))
        elif is_spark_error(error):
            # The full text has pages of Java stack traces, and Spark has logged it already.
            say(describe(error))
        else:
            raise
        raise typer.Exit(failed) from None


def is_spark_error(error: Exception) -> bool:
    return is_raised_by("pyspark.errors", "PySparkException", error)


def _first_line(error: Exception) -> str:
    """The following lines are the library's own trace."""
    return str(error).splitlines()[0]


# --- progress -------------------------------------------------------------------------------------------------------


def describe_stage(stage: StageSummary) -> str:
    size = f", {decimal(stage.bytes)}" if stage.bytes else ""
    return f"{stage.stage}: {stage.records:,} records{size} in {stage.seconds:.1f} s ({stage.rate:,.0f}/s)"


def describe_round(summary: RoundSummary, lag: Lag) -> str:
    seconds = (summary.end - summary.begin) / 1000
    outcome = f"failed: {summary.error}" if summary.error else "stopped" if summary.stopped else "done"
    logs = counted(lag.logs, "log")
    return f"round {outcome} after {seconds:.1f} s; lag: {lag.behind:,} of {lag.heads:,} records in {logs}"


def describe_problem(problem: PipelineProblem) -> str:
    seq = "" if problem.seq is None else f" at seq {problem.seq}"
    place = "" if problem.log is None else f", log {problem.log}{seq}"
    return f"problem in stage {problem.stage}{place}: {problem.message}"


class Lines:
    """Prints a line when a stage or a round ends. Rounds without work are not printed."""

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
        with suppress(OSError):  # standard error is closed; the round continues
            put(text, file=sys.stderr, flush=True)


class Bars:
    """Shows a bar per stage of the current round; finished stages and rounds stay as lines."""

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
