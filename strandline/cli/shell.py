"""``strandline shell``: a Python prompt with a data directory open."""

from __future__ import annotations

import code
from pathlib import Path
from typing import Annotated

import typer

from strandline.engine import Batch, Config, Engine, Producer

HINT = """\
Strandline: {path} is open as `engine`, with {count} logs.

  log = engine.create("orders", Config(durability="fsync")).wait()
  log.append(Batch.of(b'{{"id": 1}}', key="customer-7")).wait()
  list(log.read(after=0, limit=10))
  engine.names()

Leave with exit() or Ctrl-D; the directory is closed in good order."""


def shell_command(
    directory: Annotated[Path, typer.Argument(help="The data directory; made when it does not exist.")],
) -> None:
    """Open a data directory at a Python prompt."""
    with Engine.open(directory) as engine:
        names = {"engine": engine, "Batch": Batch, "Config": Config, "Producer": Producer}
        code.interact(banner=HINT.format(path=directory, count=len(engine)), local=names, exitmsg="")
