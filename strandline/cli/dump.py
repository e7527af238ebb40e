"""``strandline dump``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from strandline.cli.output import open_console, put, say
from strandline.engine.verify.dump import SHOWN_ROWS, dump


def dump_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A journal, checkpoint, segment or MANIFEST file.")],
    rows: Annotated[
        int, typer.Option("--rows", metavar="N", min=0, help="Records to show of every frame, and of a segment.")
    ] = SHOWN_ROWS,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Print what is in a file of a data directory, damage included."""
    console = open_console()
    try:
        for item in dump(file, rows):
            if as_json:
                put(msgspec.json.encode(item).decode())
            elif console.is_terminal:
                console.print(Text(str(item), "red" if item.kind == "damage" else ""), soft_wrap=True)
            else:
                put(str(item))
    except BrokenPipeError:
        raise
    except OSError as error:
        say(f"{file}: {error.strerror}")
        raise typer.Exit(2) from None
