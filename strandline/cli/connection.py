"""Talking to a server: the options of every command that does."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.client import Client

DEFAULT_URL = "http://127.0.0.1:4000"
#: A person waits for the answer: a server that is not there is told soon, one that restarts is waited for.
PATIENCE_SECONDS = 3.0

Url = Annotated[
    str, typer.Option("--url", metavar="URL", envvar="STRANDLINE_URL", help="The server.", rich_help_panel="Server")
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        envvar="STRANDLINE_KEY",
        show_envvar=True,
        help="The server's key, if it asks for one.",
        rich_help_panel="Server",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def connect(url: str, key: str | None, *, patience: float = PATIENCE_SECONDS) -> Client:
    """Raises BadParameter if the url is none."""
    try:
        return Client(url, key, patience=patience)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--url") from None
