"""``python -m bench [GROUP ...] [--quick] [--json FILE] [--write-docs]``"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from msgspec.structs import replace
from rich.console import Console

from bench import (
    aggregates,
    append,
    change,
    client,
    collections,
    declared,
    documentation,
    history,
    logs,
    peers_run,
    pipeline,
    read,
    recovery,
    replica,
    seal,
    search,
    search_first,
    start,
    streams,
    tables,
    topics,
    topics_delivery,
)
from bench.machine import describe
from bench.measure import FULL, QUICK, Effort, Row
from bench.report import Report, show

GROUPS: dict[str, Callable[[Path, Effort], Iterator[Row]]] = {
    "append": append.run,
    "read": read.run,
    "change": change.run,
    "recovery": recovery.run,
    "seal": seal.run,
    "history": history.run,
    "logs": logs.run,
    "start": start.run,
    "topics": topics.run,
    "topics-delivery": topics_delivery.run,
    "streams": streams.run,
    "collections": collections.run,
    "tables": tables.run,
    "aggregates": aggregates.run,
    "client": client.run,
    "search": search.run,
    "search-first": search_first.run,
    "pipeline": pipeline.run,
    "typed-tables": pipeline.run_typed,
    "declared": declared.run,
    "replica": replica.run,
    "peers": peers_run.run,
}
UNFIT = "--write-docs needs a full run, because the figures of a quick run mean little"
DOCUMENTATION = Path(__file__).parent.parent / "docs/reference/benchmarks.md"


def main(
    groups: Annotated[
        list[str] | None, typer.Argument(help=f"Groups to run: {', '.join(GROUPS)}. Default: all.")
    ] = None,
    quick: Annotated[bool, typer.Option(help="Only check that everything works; the figures mean little.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write the results to this file.")] = None,
    write_docs: Annotated[
        bool, typer.Option(help="Write the results into the pages about benchmarks in docs/reference.")
    ] = False,
    shown: Annotated[
        Path | None,
        typer.Option("--from", exists=True, help="Show the results in this file of an earlier run; measure nothing."),
    ] = None,
    documents: Annotated[
        int,
        typer.Option(
            help='Number of documents of the group "search"; "search-first" has ten times as many.', min=10_000
        ),
    ] = FULL.documents,
    takeover_records: Annotated[
        int, typer.Option(help='Number of records of the largest takeover of the group "replica".', min=1_000_000)
    ] = FULL.takeover_records,
    directory: Annotated[
        Path | None, typer.Option(help="Directory to work in; its disk is measured. Default: a temporary directory.")
    ] = None,
) -> None:
    """Measure the engine and the server, each figure next to a floor or a peer."""
    chosen = groups or list(GROUPS)
    unknown = sorted(set(chosen) - set(GROUPS))
    if write_docs and quick:
        raise typer.BadParameter(UNFIT)
    if unknown:
        raise typer.BadParameter(f"unknown group {', '.join(unknown)}; available are {', '.join(GROUPS)}")
    console = Console()
    if shown is not None:
        report = _read(shown)
    else:
        with tempfile.TemporaryDirectory(prefix="strandline-bench-", dir=directory) as root:
            effort = replace(QUICK if quick else FULL, documents=documents, takeover_records=takeover_records)
            report = _measure(Path(root), chosen, effort, quick, console)
    show(console, report)
    if json is not None:
        json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    if write_docs:
        if report.quick:
            raise typer.BadParameter(UNFIT)
        documentation.write(DOCUMENTATION, report)


def _read(path: Path) -> Report:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Report)
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"{path} does not contain the results of a run: {error}") from error


def _measure(root: Path, groups: list[str], effort: Effort, quick: bool, console: Console) -> Report:
    machine = describe(root)
    start = time.monotonic()
    rows: list[Row] = []
    with console.status("measuring") as status:
        for group in groups:
            status.update(f"measuring: {group}")
            for row in GROUPS[group](root, effort):
                rows.append(row)
                status.update(f"measuring: {group} ({len(rows)} figures, the last: {row.name})")
    return Report(f"{datetime.now(UTC):%Y-%m-%d}", machine, (time.monotonic() - start) / 60, rows, quick)


if __name__ == "__main__":
    typer.run(main)
