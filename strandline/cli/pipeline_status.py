"""``strandline pipeline status``: how a pipeline is doing, for people and for programs.

Exit codes: 0 it was told, 1 there is nothing to tell, or nobody to ask.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from strandline.cli.output import open_console, put, say
from strandline.cli.progress import describe_problem, describe_round
from strandline.client import Client, Refused, StrandlineError
from strandline.lake.claim import is_claimed
from strandline.lake.location import Lake
from strandline.lake.status import BadStatus, Status, read_status

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
        show(status, open_console(highlight=False, soft_wrap=True))
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
        show(answer.status, console)
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
    status: Status | None = None


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


def show(status: Status, console: Console) -> None:
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


def _logs(status: Status) -> Table:
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
