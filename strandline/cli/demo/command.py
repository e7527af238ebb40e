"""``strandline demo``: a server, a week of orders, a kill, and the pipeline, in a temporary or a kept directory."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, NamedTuple

import typer

from strandline.cli.demo.chapters import (
    DemoStage,
    draw_takings,
    follow_payments,
    pack_parcels,
    review_a_lamp,
    route_to_a_city,
    run_the_pipeline,
    search_orders,
    sign_a_delivery,
    start_a_server,
    stop_and_verify,
    trade_for_a_week,
)
from strandline.cli.demo.crash import kill_and_recover
from strandline.cli.demo.declared_tables import declare_tables
from strandline.cli.demo.narration import Teller
from strandline.cli.demo.server import DECLARED, DemoFailed, DemoServer
from strandline.cli.demo.shop import Shop
from strandline.cli.exit_codes import CommandFailed
from strandline.cli.options import Jars
from strandline.cli.output import open_console, say
from strandline.client import StrandlineError

SETTINGS = "strandline.toml"
PICTURE = "takings.png"


class DemoPlaces(NamedTuple):
    directory: Path
    picture: Path


@contextmanager
def places(keep: Path | None) -> Iterator[DemoPlaces]:
    """The directory of the data, and the file of the chart. Without ``keep``, only the chart remains. Raises DemoFailed
    if ``keep`` cannot be used."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="strandline-demo-") as directory:
            yield DemoPlaces(Path(directory), Path(tempfile.gettempdir()) / f"{Path(directory).name}.png")
        return
    keep = keep.absolute()
    try:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise DemoFailed(f"{keep} is not empty; specify a new directory with --keep")
        (keep / SETTINGS).write_text(_settings(keep))
    except OSError as error:
        raise DemoFailed(f"cannot write to {keep}: {error.strerror}") from None
    yield DemoPlaces(keep, keep / PICTURE)


def _settings(directory: Path) -> str:
    # A JSON string is also a TOML string.
    return (
        f"[server]\ndeclare = {json.dumps(DECLARED)}\n\n"
        f"[storage]\ndata_dir = {json.dumps(str(directory / 'data'), ensure_ascii=False)}\n"
    )


# --- the order of the chapters -------------------------------------------------------------------------

CHAPTERS = (
    start_a_server,
    trade_for_a_week,
    follow_payments,
    pack_parcels,
    route_to_a_city,
    kill_and_recover,
    sign_a_delivery,
    review_a_lamp,
    run_the_pipeline,
    search_orders,
    draw_takings,
    declare_tables,
    stop_and_verify,
)


def tell(stage: DemoStage) -> None:
    for chapter in CHAPTERS:
        chapter(stage)


# --- the command -----------------------------------------------------------------------------------------------------

SEED = 7
#: The demo is stopped after this time, because something hangs.
LONGEST_SECONDS = 600
INTERRUPTED = 130


def demo_command(
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep", metavar="DIR", help="Keep the data and the chart in this new directory. Default: delete them."
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the generated orders.")] = SEED,
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Run the pipeline, if Spark is installed.")] = True,
    jars: Jars = None,
) -> None:
    """Show the features of the server in about a minute and a half, and check every result.

    The demo starts a server, writes the orders of a week, kills the server with SIGKILL, counts the records, and runs
    the pipeline if Spark is installed. With Delta Lake for Spark, it also keeps declared tables current and serves a
    page that shows one of them live.

    Example:
      strandline demo --keep shop
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 shows question marks
    teller = Teller(open_console(highlight=False))
    started = time.perf_counter()
    try:
        with ended_in_order(), places(keep) as kept, DemoServer(kept.directory) as server:
            teller.around(
                "Strandline demo: a week in a shop",
                ["An append-only log server at work. The demo checks every result, and stops at the first difference."],
            )
            tell(DemoStage(server, teller, Shop(seed), kept.picture, spark, jars or []))
    except KeyboardInterrupt:
        say("demo interrupted; all its processes have ended")
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        raise
    except (DemoFailed, StrandlineError, OSError) as error:
        raise CommandFailed(f"the demo failed: {' '.join(str(error).split())}") from error
    teller.around(
        f"All checks passed in {time.perf_counter() - started:.0f} s: no acknowledged record was lost.",
        _what_next(keep, kept),
    )


def _what_next(keep: Path | None, kept: DemoPlaces) -> list[str]:
    program = _program()
    serve = f"{program} serve --config {shlex.quote(str((keep or Path('shop')) / SETTINGS))}"
    lines = [f"Chart: {kept.picture}"]
    if keep is None:
        lines += ["To explore this data, keep it and start a server on it:", f"   {program} demo --keep shop"]
    else:
        lines.append("To explore this data, start a server on it:")
    return [
        *lines,
        f"   {serve}",
        "Then open http://127.0.0.1:4000/console to see the logs, the queue, the router and the search.",
        "To start with an empty data directory: `strandline serve --data data`. The guides are in docs/.",
    ]


def _program() -> str:
    """The command that runs this program; it may not be on the PATH."""
    called = sys.argv[0]
    if not called.endswith("strandline"):
        return "python -m strandline"
    return "strandline" if shutil.which("strandline") == called else shlex.quote(called)


@contextmanager
def ended_in_order() -> Iterator[None]:
    """End all processes of the demo on a signal, when its terminal closes, and after the maximum time."""

    def break_off(number: int, frame: FrameType | None) -> None:
        # A second signal must not interrupt the clean-up.
        for other in before:
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt

    def give_up(number: int, frame: FrameType | None) -> None:
        raise DemoFailed(f"not finished after {LONGEST_SECONDS // 60} minutes")

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    # Signals that are ignored from the start, as with nohup, stay ignored.
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, break_off)
    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LONGEST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        for number, handler in {**before, signal.SIGALRM: signal.SIG_DFL}.items():
            signal.signal(number, handler)
