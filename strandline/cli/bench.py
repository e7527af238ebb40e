"""``strandline bench``: the benchmarks, which are in the repository and not in the package."""

from __future__ import annotations

import runpy
import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from strandline.cli.exit_codes import CommandFailed


def bench_command(
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENT]...", help="As python -m bench takes them; --help.")
    ] = None,
) -> None:
    """Run the benchmarks: needs a clone of the repository."""
    if find_spec("bench") is None or find_spec("bench.__main__") is None:
        raise CommandFailed("the benchmarks are not installed: run this in a clone of the repository (or make bench)")
    sys.argv = ["strandline bench", *(arguments or ())]
    runpy.run_module("bench", run_name="__main__")
