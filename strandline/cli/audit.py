"""``strandline pipeline audit``.

Exit codes: 0 everything is sound; 1 something is not; 2 the command makes no sense, or it could not be looked; 3 Spark
or Java is missing; 4 with --repair, another pipeline is at work on the lake. The report goes to standard output,
progress to standard error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from strandline.cli.output import open_console, put
from strandline.cli.pipeline import parse_conf
from strandline.cli.spark_options import (
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
    errors,
    session,
    watching,
)

if TYPE_CHECKING:
    from strandline.history.source import History
    from strandline.pipeline.audit.report import AuditReport, Finding


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
    logs: Annotated[
        list[str] | None, typer.Option("--logs", metavar="NAME", help="Only this log. Can be given more than once.")
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="Only logs whose names begin so.")] = "",
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
        show(report, open_console(highlight=False, soft_wrap=True))
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
    from strandline.lake.location import Lake
    from strandline.pipeline.audit.lake_files import LakeSnapshot
    from strandline.pipeline.audit.repair import repair_lake
    from strandline.pipeline.audit.report import write_report
    from strandline.pipeline.audit.run import audit, on_spark
    from strandline.pipeline.rounds import Chosen, belong

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


def show(report: AuditReport, console: Console) -> None:
    table = Table("check", "", "log", "first seq", "count", "", box=None, pad_edge=False)
    for finding in report.findings:
        table.add_row(
            finding.check,
            _verdict(finding),
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


def _verdict(finding: Finding) -> str:
    if finding.log and finding.ok:
        return "[yellow]note[/]"
    return "[green]ok[/]" if finding.ok else "[red]bad[/]"
