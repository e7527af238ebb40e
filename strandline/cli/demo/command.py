"""Where the demonstration keeps its things: a directory that goes with it, or one that stays."""

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
from strandline.cli.demo.narration import Teller
from strandline.cli.demo.server import DECLARED, DemoFailed, DemoServer
from strandline.cli.demo.shop import Shop
from strandline.cli.exit_codes import CommandFailed
from strandline.cli.output import open_console, say
from strandline.client import StrandlineError

SETTINGS = "strandline.toml"
PICTURE = "takings.png"


class DemoPlaces(NamedTuple):
    directory: Path
    picture: Path


@contextmanager
def places(keep: Path | None) -> Iterator[DemoPlaces]:
    """With ``keep`` everything stays there, with settings for a server; else the picture alone stays. Raises Broken if
    ``keep`` cannot be used."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="strandline-demo-") as directory:
            yield DemoPlaces(Path(directory), Path(tempfile.gettempdir()) / f"{Path(directory).name}.png")
        return
    keep = keep.absolute()
    try:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise DemoFailed(f"{keep} is not empty: give --keep a new directory")
        (keep / SETTINGS).write_text(_settings(keep))
    except OSError as error:
        raise DemoFailed(f"{keep} cannot be used: {error.strerror}") from None
    yield DemoPlaces(keep, keep / PICTURE)


def _settings(directory: Path) -> str:
    # A string of JSON is one of TOML as well.
    return (
        f"[server]\ndeclare = {json.dumps(DECLARED)}\n\n"
        f"[storage]\ndata_dir = {json.dumps(str(directory / 'data'), ensure_ascii=False)}\n"
    )


# --- The story: which chapter follows which -------------------------------------------------------------------------

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
    stop_and_verify,
)


def tell(stage: DemoStage) -> None:
    for chapter in CHAPTERS:
        chapter(stage)


# --- ``strandline demo``: what the server does, shown on a directory and a port of its own. Ends by itself ----------

SEED = 7
#: Nothing that is shown takes so long: something hangs.
LONGEST_SECONDS = 600
BROKEN_OFF = 130


def demo_command(
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="DIR", help="Keep the data and the picture here, to look around.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Another seed, another week.")] = SEED,
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Show the pipeline, if Spark is here.")] = True,
) -> None:
    """Show what the server does: a week of a shop, a kill -9, history on Spark. Takes about a minute."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # better a question mark than an end in the middle
    teller = Teller(open_console(highlight=False))
    started = time.perf_counter()
    try:
        with ended_in_order(), places(keep) as kept, DemoServer(kept.directory) as server:
            teller.around(
                "Strandline, in a week of a shop",
                ["An append-only event log server, shown by doing. It checks what it says and ends by itself."],
            )
            tell(DemoStage(server, teller, Shop(seed), kept.picture, spark))
    except KeyboardInterrupt:
        say("the demonstration was broken off; nothing is left running")
        raise typer.Exit(BROKEN_OFF) from None
    except BrokenPipeError:
        raise
    except (DemoFailed, StrandlineError, OSError) as error:
        raise CommandFailed(f"the demonstration has failed: {' '.join(str(error).split())}") from error
    teller.around(f"Nothing was lost. That took {time.perf_counter() - started:.0f} s.", _what_next(keep, kept))


def _what_next(keep: Path | None, kept: DemoPlaces) -> list[str]:
    program = _program()
    serve = f"{program} serve --config {shlex.quote(str((keep or Path('shop')) / SETTINGS))}"
    lines = [f"The picture: {kept.picture}"]
    if keep is None:
        lines += ["To look around in this shop, keep it, and start a server on it:", f"   {program} demo --keep shop"]
    else:
        lines.append("To look around in this shop, start a server on it:")
    return [
        *lines,
        f"   {serve}",
        "Then open http://127.0.0.1:4000/console: the logs, the queue with its dead letter, the router, the search.",
        "To start with a directory of your own: `make run`. The guides are in docs/.",
    ]


def _program() -> str:
    """How this program is called here: it need not be on the path."""
    called = sys.argv[0]
    if not called.endswith("strandline"):
        return "python -m strandline"
    return "strandline" if shutil.which("strandline") == called else shlex.quote(called)


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Whoever ends this process, or closes its terminal, ends all that it has started; so does the time."""

    def break_off(number: int, frame: FrameType | None) -> None:
        # Whoever is impatient and asks twice must not end it in the middle of ending the others.
        for other in before:
            signal.signal(other, signal.SIG_IGN)
        raise KeyboardInterrupt

    def give_up(number: int, frame: FrameType | None) -> None:
        raise DemoFailed(f"it was not done after {LONGEST_SECONDS // 60} minutes")

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    # What is ignored from the start, as in the background of a shell or by nohup, goes on being ignored.
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
