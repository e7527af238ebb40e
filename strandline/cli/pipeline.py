"""``strandline pipeline``: the history on Spark.

Exit codes of ``run``: 0 done, or told to stop; 1 failed; 2 invalid arguments; 3 Spark or Java is missing or does not
start; 4 another pipeline works on the lake, or has taken it over. ``status`` ends with 1 if there is no status to show.
``audit`` ends with 1 if it has findings and with 2 if it could not look; its report goes to standard output.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from strandline.cli.output import open_console, put, say
from strandline.cli.spark import (
    EXIT_FAILED,
    EXIT_USAGE,
    AsJson,
    Cold,
    Conf,
    Data,
    Key,
    Master,
    Remote,
    Url,
    check_directory,
    describe_problem,
    describe_round,
    errors,
    progress,
    session,
    watching,
)
from strandline.client import Client, Refused, StrandlineError
from strandline.lake.fence import is_claimed
from strandline.lake.location import Lake
from strandline.lake.status import BadStatus, PipelineStatus, read_status

if TYPE_CHECKING:
    from strandline.history.source import History
    from strandline.pipeline.audit.report import AuditReport, Finding

app = typer.Typer(name="pipeline", no_args_is_help=True, help="Process the history on Spark.")

_Lake = Annotated[
    str | None, typer.Option("--lake", metavar="PLACE", help="A directory or s3://bucket/prefix; else DIR/lake.")
]
_Logs = Annotated[
    list[str] | None, typer.Option("--logs", metavar="NAME", help="Only this log. Can be given more than once.")
]
_Prefix = Annotated[str, typer.Option("--prefix", metavar="TEXT", help="Only logs whose names begin so.")]


@app.command("run")
def run_command(
    data: Data = None,
    url: Url = None,
    key: Key = None,
    lake: _Lake = None,
    once: Annotated[
        bool, typer.Option("--once", help="Cover everything that is acknowledged now, then end. The default.")
    ] = False,
    continuous: Annotated[bool, typer.Option("--continuous", help="Go on until told to stop.")] = False,
    supervised: Annotated[
        bool,
        typer.Option("--supervised", help="Go on by a line on standard input each; end when that closes.", hidden=True),
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="S", min=0.0, help="With --continuous, look so often for more.")
    ] = 30.0,
    master: Master = "local[*]",
    remote: Remote = None,
    logs: _Logs = None,
    prefix: _Prefix = "",
    cold: Cold = "",
    conf: Conf = None,
) -> None:
    """Bring the lake up to date with the history, once or for as long as it runs.

    Exit code 0: done, or told to stop; 1: failed; 2: the command makes no sense; 3: Spark or Java is missing; 4:
    another pipeline is at work on the lake, or has taken it over.
    """
    if once + continuous + supervised > 1:
        raise typer.BadParameter("give one of --once and --continuous")
    from strandline.pipeline.run import PipelineJob, run

    job = PipelineJob(
        path="" if data is None else str(data),
        url=url or "",
        key=key,
        cold=cold,
        lake=lake_of(data, url, lake),
        mode="supervised" if supervised else "continuous" if continuous else "once",
        interval=interval,
        master=master,
        remote=remote,
        conf=parse_conf(conf or []),
        logs=tuple(logs or ()),
        prefix=prefix,
    )
    with errors(), progress() as watch:
        run(job, watch, say)


def lake_of(data: Path | None, url: str | None, lake: str | None) -> str:
    """Where the lake is. Raises BadParameter where it is not clear what is meant."""
    if (data is None) == (url is None):
        raise typer.BadParameter("give either --data or --url")
    if lake is None and data is None:
        raise typer.BadParameter("say with --lake where the lake is: with --url there is no directory for it")
    if data is not None and not data.is_dir():
        raise typer.BadParameter(f"{data} is not a directory", param_hint="--data")
    return lake or str(data / "lake" if data is not None else "")


def parse_conf(conf: list[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for one in conf:
        name, equals, value = one.partition("=")
        if not equals or not name.startswith("spark."):
            raise typer.BadParameter(f"{one!r} is not like spark.name=value", param_hint="--conf")
        settings[name] = value
    return settings


@app.command("status")
def status_command(
    data: Data = None,
    url: Url = None,
    key: Key = None,
    lake: _Lake = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as one JSON object.")] = False,
) -> None:
    """How the pipeline of a lake is doing: from the lake itself, or from the server that looks after it."""
    if sum(one is not None for one in (data, url, lake)) != 1:
        raise typer.BadParameter("give one of --data, --url and --lake")
    pass

    if url is not None:
        code = from_server(url, key, as_json)
    else:
        code = from_lake(lake or lake_of(data, None, None), as_json)
    raise typer.Exit(code)


# --- pipeline status ------------------------------------------------------------------------------------------------

#: Rounds and problems that are shown, and logs.
SHOWN = 5
SHOWN_LOGS = 20
#: A server that does not answer within this time is not asked any longer.
ANSWER_SECONDS = 30.0


def from_lake(place: str, as_json: bool) -> int:
    lake = Lake.at(place)
    try:
        status = read_status(lake)
    except (BadStatus, OSError) as error:
        return _fail(str(error))
    if status is None:
        return _fail(f"no pipeline has been at work on {lake.url}")
    if status.state != "ended" and lake.directory is not None and not is_claimed(lake):
        # It was killed, and could not say so.
        status.state, status.stages = "ended", []
    if as_json:
        put(msgspec.json.encode(status).decode())
    else:
        show_status(status, open_console(highlight=False, soft_wrap=True))
    return 0


def from_server(url: str, key: str | None, as_json: bool) -> int:
    try:
        with Client(url, key, timeout=ANSWER_SECONDS, patience=0) as client:
            told = client.call("GET", "/pipeline").body
    except Refused as error:
        return _fail(f"{url} answers {error.status}: {error.message}")
    except (StrandlineError, ValueError) as error:
        return _fail(f"{url} does not answer: {error}")
    if as_json:
        put(told.decode())
        return 0
    try:
        answer = msgspec.json.decode(told, type=_Answer)
    except msgspec.DecodeError:
        return _fail(f"{url} is no server that knows of a pipeline")
    console = open_console(highlight=False, soft_wrap=True)
    _show_keeper(answer, console)
    if answer.status is not None:
        show_status(answer.status, console)
    return 0


class _Answer(msgspec.Struct, kw_only=True):
    """What of the server's answer is shown."""

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
    status: PipelineStatus | None = None


def _show_keeper(answer: _Answer, console: Console) -> None:
    process = "" if answer.pid is None else f" as process {answer.pid}"
    again = f", next attempt in {answer.retry_seconds:.0f} s" if answer.retry_seconds else ""
    console.print(f"server: [bold]{escape(answer.state)}[/]{process}{again}")
    console.print(f"not in the lake yet: {answer.new_records:,} records, {answer.new_erasures:,} erasures")
    if answer.reason:
        console.print(f"because {escape(answer.reason)}")
    for sentence in answer.missing:
        console.print(f"[red]missing[/]  {escape(sentence)}")
    if answer.last_error:
        console.print(f"[red]last error[/]  {escape(answer.last_error)} ({answer.failures} of {answer.starts} starts)")


def show_status(status: PipelineStatus, console: Console) -> None:
    who = "" if status.state == "ended" else escape(f", process {status.pid} on {status.host}, {status.master}")
    console.print(f"pipeline: [bold]{status.state}[/] since {_time(status.since)}{who}")
    for sentence in status.missing:
        console.print(f"[red]missing[/]  {escape(sentence)}")
    for stage in status.stages:
        total = "" if stage.total is None else f" of {stage.total:,}"
        console.print(f"  {escape(stage.stage)}: {stage.records:,}{total} records, {stage.rate:,.0f}/s")
    lag = status.lag
    console.print(f"{lag.logs:,} logs, {lag.heads:,} records, {lag.behind:,} behind; {status.rounds_total:,} rounds")
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


@app.command("audit")
def audit_command(
    data: Data = None,
    url: Url = None,
    key: Key = None,
    lake: Annotated[
        str | None,
        typer.Option(
            "--lake", metavar="PLACE", help="Compare with this lake and write the report there; else DIR/lake."
        ),
    ] = None,
    logs: _Logs = None,
    prefix: _Prefix = "",
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="First remove rows of the table records that are there more than once. Needs a lake."
        ),
    ] = False,
    cold: Cold = "",
    master: Master = "local[*]",
    remote: Remote = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Check whole logs: checksums, order, gaps, floors, proofs of authors, and whether the lake has the same records.

    By --url checksums are left to the server. The report is written to the table audit of the lake, if there is a lake.

    With --repair, one row of each record stays in the lake. No pipeline may be at work on the lake meanwhile.

    Exit code 0: sound; 1: something is not; 2: the command makes no sense or it could not be looked; 3: Spark or Java
    is missing; 4: with --repair, another pipeline is at work on the lake.
    """
    if (data is None) == (url is None):
        raise typer.BadParameter("give either --data or --url")
    path = check_directory(data)
    place = lake if lake is not None or data is None else str(data / "lake")
    if repair and place is None:
        raise typer.BadParameter("say with --lake which lake to repair: with --url there is no directory for it")
    settings = parse_conf(conf or [])
    with errors(EXIT_USAGE):
        report = _audit(path, url or "", key, cold, place, tuple(logs or ()), prefix, repair, master, remote, settings)
    if as_json:
        put(msgspec.json.encode(report).decode())
    else:
        show_audit(report, open_console(highlight=False, soft_wrap=True))
    raise typer.Exit(0 if report.ok else EXIT_FAILED)


def _audit(
    path: str,
    url: str,
    key: str | None,
    cold: str,
    place: str | None,
    logs: tuple[str, ...],
    prefix: str,
    repair: bool,
    master: str,
    remote: str | None,
    conf: dict[str, str],
) -> AuditReport:
    from strandline.lake.fence import belong
    from strandline.lake.location import Lake
    from strandline.pipeline.audit.duplicates import repair_lake
    from strandline.pipeline.audit.lake_files import LakeSnapshot
    from strandline.pipeline.audit.report import write_report
    from strandline.pipeline.audit.run import audit
    from strandline.pipeline.round import Chosen
    from strandline.pipeline.tasks import on_spark

    lake = None if place is None else Lake.at(place)
    chosen, removed = Chosen(logs, prefix), None
    with session(master, remote, conf, "strandline audit") as spark, watching() as reporter:
        if repair and lake is not None:
            with opened(path, url, key, cold) as history:
                belong(lake, history.directory)
                removed = repair_lake(spark, history, lake, reporter, chosen)
        # The lake first: what it has in excess was then removed from the logs since.
        snapshot = None if lake is None else LakeSnapshot.take(lake)
        with opened(path, url, key, cold) as history:
            if lake is not None:
                belong(lake, history.directory)
            report = audit(on_spark(spark), history, snapshot, reporter, chosen, source=path or url, removed=removed)
    if lake is not None:
        write_report(lake, report)
    return report


@contextmanager
def opened(path: str, url: str, key: str | None, cold: str) -> Iterator[History]:
    from strandline.history.source import open_history

    history = open_history(path=path, url=url, key=key, cold_url=cold)
    try:
        yield history
    finally:
        history.close()


def show_audit(report: AuditReport, console: Console) -> None:
    table = Table("check", "", "log", "first seq", "count", "", box=None, pad_edge=False)
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
        f"{report.logs} logs, {report.records} records: "
        + ("[green]sound[/]" if report.ok else f"[red]{len(bad)} findings[/]")
    )


def _audit_verdict(finding: Finding) -> str:
    if finding.log and finding.ok:
        return "[yellow]note[/]"
    return "[green]ok[/]" if finding.ok else "[red]bad[/]"
