"""``strandline demo``: what the server does, shown on a directory and a port of its own. Ends by itself.

Exit codes: 0 all of it was shown and is true, 1 something went wrong, 130 it was broken off.
"""

from __future__ import annotations

import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from strandline.cli.demo.places import SETTINGS, Places, places
from strandline.cli.demo.server import Broken, DemoServer
from strandline.cli.demo.shop import Shop
from strandline.cli.demo.stage import Stage
from strandline.cli.demo.story import tell
from strandline.cli.demo.telling import Teller
from strandline.cli.exits import CommandFailed
from strandline.cli.output import open_console, say
from strandline.client import StrandlineError

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
            tell(Stage(server, teller, Shop(seed), kept.picture, spark))
    except KeyboardInterrupt:
        say("the demonstration was broken off; nothing is left running")
        raise typer.Exit(BROKEN_OFF) from None
    except BrokenPipeError:
        raise
    except (Broken, StrandlineError, OSError) as error:
        raise CommandFailed(f"the demonstration has failed: {' '.join(str(error).split())}") from error
    teller.around(f"Nothing was lost. That took {time.perf_counter() - started:.0f} s.", _what_next(keep, kept))


def _what_next(keep: Path | None, kept: Places) -> list[str]:
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
        raise Broken(f"it was not done after {LONGEST_SECONDS // 60} minutes")

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
