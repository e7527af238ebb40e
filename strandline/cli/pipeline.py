"""``strandline pipeline``: copy the history of logs to the lake with Spark, show its status, and audit it.

Exit codes of ``run``: 0 done or stopped, 1 failed, 2 invalid arguments, 3 Spark or Java is missing or does not start,
4 another pipeline uses the lake. ``status`` exits with 1 if there is no status. ``audit`` exits with 1 if it has
findings and with 2 if it could not run.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from strandline.cli.command_class import Command
from strandline.cli.declared import init_command, refresh_command, tables_command
from strandline.cli.options import (
    ApiKey,
    AsJson,
    Cold,
    Conf,
    Data,
    Jars,
    LakeLocation,
    LogNames,
    Master,
    NamePrefix,
    Packages,
    Remote,
    SourceUrl,
)
from strandline.cli.output import counted, open_console, put, say
from strandline.cli.spark import (
    DEFAULT_MASTER,
    EXIT_FAILED,
    EXIT_USAGE,
    LogSource,
    check_directory,
    describe_problem,
    describe_round,
    errors,
    log_source,
    parse_conf,
    progress,
    session,
    watching,
    with_jars,
)
from strandline.client import Client, Refused, StrandlineError
from strandline.lake.fence import is_claimed
from strandline.lake.location import Lake
from strandline.lake.status import BadStatus, PipelineStatus, read_status

if TYPE_CHECKING:
    from strandline.pipeline.audit.report import AuditReport, Finding

app = typer.Typer(name="pipeline", no_args_is_help=True, help="Copy the history of logs to a lake with Spark.")
app.command("init", cls=Command)(init_command)
app.command("tables", cls=Command)(tables_command)
app.command("refresh", cls=Command)(refresh_command)


@app.command("run", cls=Command)
def run_command(
    data: Data = None,
    url: SourceUrl = None,
    api_key: ApiKey = None,
    lake: LakeLocation = None,
    once: Annotated[
        bool, typer.Option("--once", help="Process all records that are acknowledged now, then exit. The default.")
    ] = False,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Keep processing new records until stopped.")
    ] = False,
    supervised: Annotated[
        bool,
        typer.Option("--supervised", help="Run a round for each line of standard input, until it ends.", hidden=True),
    ] = False,
    interval: Annotated[
        float,
        typer.Option("--interval", metavar="SECONDS", min=0.0, help="With --continuous: seconds between two rounds."),
    ] = 30.0,
    master: Master = DEFAULT_MASTER,
    remote: Remote = None,
    logs: LogNames = None,
    prefix: NamePrefix = "",
    cold: Cold = "",
    project: Annotated[
        Path | None,
        typer.Option(
            "--project",
            metavar="DIR",
            help="Also keep the declared tables of this project; needs Delta Lake for Spark.",
        ),
    ] = None,
    server: Annotated[
        str, typer.Option("--server", help="URL of the server that runs on the data directory.", hidden=True)
    ] = "",
    jars: Jars = None,
    packages: Packages = None,
    conf: Conf = None,
) -> None:
    """Bring the lake up to date with the logs, once or continuously.

    With --project, also the declared tables of a project: with --once, everything that is there now; with
    --continuous, until stopped.

    Exit codes: 0 done or stopped; 1 failed; 2 invalid arguments; 3 Spark or Java is missing; 4 another pipeline uses
    the lake.

    Example:
      strandline pipeline run --data data
      strandline pipeline run --url http://server:4000 --lake s3://history/lake --continuous
      strandline pipeline run --url http://server:4000 --lake lake --project shop --continuous
    """
    if once + continuous + supervised > 1:
        raise typer.BadParameter("specify only one of --once and --continuous")
    source = log_source(data, url, api_key, cold)
    place = lake_of(data, lake)
    if place is None:
        raise typer.BadParameter("--url needs --lake: specify the location of the lake")
    if project is not None:
        check_project(project, place, remote or master)
    from strandline.pipeline.run import PipelineJob, run

    job = PipelineJob(
        # A project's files may run in its own directory.
        path=source.path and str(Path(source.path).absolute()),
        url=source.url,
        key=api_key,
        cold=cold,
        lake=place if "://" in place else str(Path(place).absolute()),
        mode="supervised" if supervised else "continuous" if continuous else "once",
        interval=interval,
        master=master,
        remote=remote,
        conf=with_jars(parse_conf(conf), jars, packages),
        logs=tuple(logs or ()),
        prefix=prefix,
        project="" if project is None else str(project.absolute()),
        server=server,
    )
    with errors(), progress() as watch:
        run(job, watch, say)


def check_project(project: Path, lake: str, master: str) -> None:
    """Raises BadParameter for a project that cannot be run here."""
    if not project.is_dir():
        raise typer.BadParameter(f"{project} is not a directory; expected a project", param_hint="--project")
    if Lake.at(lake).directory is None:
        raise typer.BadParameter(
            "declared tables need a lake in a directory that all machines share", param_hint="--lake"
        )
    if master.startswith("sc://"):
        raise typer.BadParameter(
            "declared tables cannot run through Spark Connect; use --master", param_hint="--project"
        )


def lake_of(data: Path | None, lake: str | None) -> str | None:
    """The location of the lake; None if neither option gives one."""
    return lake if lake is not None or data is None else str(data / "lake")


@app.command("status", cls=Command)
def status_command(
    data: Data = None,
    url: SourceUrl = None,
    api_key: ApiKey = None,
    lake: LakeLocation = None,
    as_json: AsJson = False,
) -> None:
    """Show the state, progress and problems of the pipeline, from the lake or from a server.

    Example:
      strandline pipeline status --data data
      strandline pipeline status --url http://127.0.0.1:4000
    """
    if sum(one is not None for one in (data, url, lake)) != 1:
        raise typer.BadParameter("specify exactly one of --data, --url and --lake")
    check_directory(data)
    raise typer.Exit(
        from_server(url, api_key, as_json) if url is not None else from_lake(str(lake_of(data, lake)), as_json)
    )


# --- pipeline status ------------------------------------------------------------------------------------------------

#: Maximum number of rounds, problems and logs that are shown.
SHOWN = 5
SHOWN_LOGS = 20
#: Timeout of the request for the status.
ANSWER_SECONDS = 30.0


def from_lake(place: str, as_json: bool) -> int:
    lake = Lake.at(place)
    try:
        status = read_status(lake)
    except (BadStatus, OSError) as error:
        return _fail(str(error))
    if status is None:
        return _fail(f"no pipeline has run on the lake {lake.url}; start one with `strandline pipeline run`")
    if status.state != "ended" and lake.directory is not None and not is_claimed(lake):
        # The process was killed before it could update the status.
        status.state, status.stages = "ended", []
    if as_json:
        put(msgspec.json.encode(status).decode())
    else:
        show_status(status, open_console(highlight=False, soft_wrap=True))
    return 0


def from_server(url: str, api_key: str | None, as_json: bool) -> int:
    try:
        with Client(url, api_key, timeout=ANSWER_SECONDS, patience=0) as client:
            answered = client.call("GET", "/pipeline").body
    except Refused as error:
        return _fail(f"{url} answered {error.status}: {error.message}")
    except (StrandlineError, ValueError) as error:
        return _fail(f"{error}; check that --url is the URL of a running server")
    if as_json:
        put(answered.decode())
        return 0
    try:
        answer = msgspec.json.decode(answered, type=_Answer)
    except msgspec.DecodeError:
        return _fail(f"{url} sent an unexpected answer; expected the URL of a Strandline server")
    console = open_console(highlight=False, soft_wrap=True)
    _show_supervisor(answer, console)
    if answer.status is not None:
        show_status(answer.status, console)
    return 0


class _RetainedLog(msgspec.Struct, frozen=True):
    log: str
    lag_records: int
    lag_seconds: float
    held_records: int
    held_bytes: int


class _Retained(msgspec.Struct, frozen=True):
    """The logs that keep records until the lake has them."""

    logs: int = 0
    held_records: int = 0
    held_bytes: int = 0
    rows: tuple[_RetainedLog, ...] = ()


class _Answer(msgspec.Struct, kw_only=True):
    """The part of the server's answer that is shown."""

    state: str
    pid: int | None = None
    starts: int = 0
    failures: int = 0
    last_error: str | None = None
    retry_seconds: float = 0.0
    missing: list[str] = []
    new_records: int = 0
    new_erasures: int = 0
    reason: str = ""
    retained: _Retained = _Retained()
    warnings: list[str] = []
    status: PipelineStatus | None = None


def _show_supervisor(answer: _Answer, console: Console) -> None:
    process = "" if answer.pid is None else f" as process {answer.pid}"
    again = f", next attempt in {answer.retry_seconds:.0f} s" if answer.retry_seconds else ""
    console.print(f"server: [bold]{escape(answer.state)}[/]{process}{again}")
    console.print(f"not in the lake: {answer.new_records:,} records, {answer.new_erasures:,} erasures")
    if answer.reason:
        console.print(f"reason: {escape(answer.reason)}")
    for sentence in answer.missing:
        console.print(f"[red]missing[/]  {escape(sentence)}")
    for sentence in answer.warnings:
        console.print(f"[yellow]warning[/]  {escape(sentence)}")
    if answer.retained.logs:
        _show_retained(answer.retained, console)
    if answer.last_error:
        console.print(
            f"[red]last error[/]  {escape(answer.last_error)} ({answer.failures} of {answer.starts} starts failed)"
        )


def _show_retained(retained: _Retained, console: Console) -> None:
    held = f"{counted(retained.held_records, 'record')} ({retained.held_bytes:,} bytes)"
    console.print(f"{counted(retained.logs, 'log')} with retain_until_in_lake, {held} beyond the retention")
    table = Table("retaining log", "not in the lake", "oldest", "beyond retention", box=None, pad_edge=False)
    for row in retained.rows[:SHOWN_LOGS]:
        table.add_row(escape(row.log), f"{row.lag_records:,}", f"{row.lag_seconds:,.0f} s", f"{row.held_records:,}")
    console.print(table)


def show_status(status: PipelineStatus, console: Console) -> None:
    who = "" if status.state == "ended" else escape(f", process {status.pid} on {status.host}, master {status.master}")
    console.print(f"pipeline: [bold]{status.state}[/] since {_time(status.since)}{who}")
    for sentence in status.missing:
        console.print(f"[red]missing[/]  {escape(sentence)}")
    for stage in status.stages:
        total = "" if stage.total is None else f" of {stage.total:,}"
        console.print(f"  {escape(stage.stage)}: {stage.records:,}{total} records, {stage.rate:,.0f}/s")
    lag = status.lag
    console.print(
        f"{counted(lag.logs, 'log')}, {counted(lag.heads, 'record')}, lag {lag.behind:,}; "
        f"{counted(status.rounds_total, 'round')}"
    )
    for summary in status.rounds[-SHOWN:]:
        console.print(f"  {_time(summary.begin)}  {escape(describe_round(summary, lag).partition(';')[0])}")
    for problem in status.problems[-SHOWN:]:
        console.print(f"  [red]{_time(problem.time)}  {escape(describe_problem(problem))}[/]")
    if lag.rows:
        console.print(_logs(status))


def _logs(status: PipelineStatus) -> Table:
    tables = sorted({table for row in status.lag.rows for table in row.covered})
    table = Table("log", "head", *tables, box=None, pad_edge=False)
    for row in status.lag.rows[:SHOWN_LOGS]:
        table.add_row(escape(row.log), f"{row.head:,}", *(_seq(row.covered.get(name)) for name in tables))
    return table


def _seq(seq: Any) -> str:
    return "" if seq is None else f"{seq:,}"


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _fail(message: str) -> int:
    say(message)
    return 1


# --- pipeline audit -------------------------------------------------------------------------------------------------


@app.command("audit", cls=Command)
def audit_command(
    data: Data = None,
    url: SourceUrl = None,
    api_key: ApiKey = None,
    lake: LakeLocation = None,
    logs: LogNames = None,
    prefix: NamePrefix = "",
    repair: Annotated[
        bool, typer.Option("--repair", help="First remove duplicate rows from the table records of the lake.")
    ] = False,
    cold: Cold = "",
    master: Master = DEFAULT_MASTER,
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Check whole logs, and compare them with the lake.

    The audit checks checksums, order, gaps and signatures; with --url, the server checks the checksums. If there is a
    lake, the audit compares its records and adds the report to its table audit. --repair keeps one row of each record;
    no pipeline may use the lake meanwhile.

    Exit codes: 0 no findings; 1 findings; 2 invalid arguments, or the audit could not run; 3 Spark or Java is missing;
    4 with --repair, a pipeline uses the lake.

    Example:
      strandline pipeline audit --data data --prefix shop/
    """
    source = log_source(data, url, api_key, cold)
    place = lake_of(data, lake)
    if repair and place is None:
        raise typer.BadParameter("--repair with --url needs --lake: specify the location of the lake")
    properties = parse_conf(conf)
    with errors(EXIT_USAGE):
        report = _audit(source, place, tuple(logs or ()), prefix, repair, master, remote, properties)
    if as_json:
        put(msgspec.json.encode(report).decode())
    else:
        show_audit(report, open_console(highlight=False, soft_wrap=True))
    raise typer.Exit(0 if report.ok else EXIT_FAILED)


def _audit(
    source: LogSource,
    place: str | None,
    logs: tuple[str, ...],
    prefix: str,
    repair: bool,
    master: str,
    remote: str | None,
    conf: dict[str, str],
) -> AuditReport:
    from strandline.lake.fence import belong
    from strandline.pipeline.audit.duplicates import repair_lake
    from strandline.pipeline.audit.lake_files import LakeSnapshot
    from strandline.pipeline.audit.report import write_report
    from strandline.pipeline.audit.run import audit
    from strandline.pipeline.chosen_logs import Chosen
    from strandline.pipeline.tasks import SparkWorkers

    lake = None if place is None else Lake.at(place)
    chosen, removed = Chosen(logs, prefix), None
    with session(master, remote, conf, "strandline audit") as spark, watching() as reporter:
        if repair and lake is not None:
            with source.opened() as history:
                belong(lake, history.directory)
                removed = repair_lake(spark, history, lake, reporter, chosen)
        # The lake is read first: a record that only the lake has was then removed from its log in the meantime.
        snapshot = None if lake is None else LakeSnapshot.take(lake)
        with source.opened() as history:
            if lake is not None:
                belong(lake, history.directory)
            report = audit(
                SparkWorkers(spark), history, snapshot, reporter, chosen, source=str(source), removed=removed
            )
    if lake is not None:
        write_report(lake, report)
    return report


def show_audit(report: AuditReport, console: Console) -> None:
    table = Table("check", "result", "log", "first seq", "count", "detail", box=None, pad_edge=False)
    for finding in report.findings:
        table.add_row(
            finding.check,
            _audit_verdict(finding),
            escape(finding.log),
            "" if finding.first_seq is None else str(finding.first_seq),
            str(finding.count) if finding.count else "",
            escape(finding.detail),
        )
    console.print(table)
    bad = [finding for finding in report.findings if not finding.ok and finding.log]
    console.print(
        f"{counted(report.logs, 'log')}, {counted(report.records, 'record')}: "
        + ("[green]no findings[/]" if report.ok else f"[red]{counted(len(bad), 'finding')}[/]")
    )


def _audit_verdict(finding: Finding) -> str:
    if finding.log and finding.ok:
        return "[yellow]note[/]"
    return "[green]ok[/]" if finding.ok else "[red]failed[/]"
