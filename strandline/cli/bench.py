"""``strandline bench``: the benchmarks. They are in the repository, not in the package."""

from __future__ import annotations

import runpy
import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from strandline.cli.exit_codes import CommandFailed


def bench_command(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ARGUMENT]...", help="Arguments of `python -m bench`; `bench --help` lists them."),
    ] = None,
) -> None:
    """Run the benchmarks. Needs a clone of the repository.

    Example:
      strandline bench append --quick
    """
    if find_spec("bench") is None or find_spec("bench.__main__") is None:
        raise CommandFailed(
            "the benchmarks are not installed; run `strandline bench` or `make bench` in a clone of the repository"
        )
    sys.argv = ["strandline bench", *(arguments or ())]
    runpy.run_module("bench", run_name="__main__")
