"""Talking to a server: the options of every command that does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Annotated

import httpx
import typer

from strandline.client import Client, StrandlineError

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


# --- completion of names in the shell -------------------------------------------------------------------------------

#: Somebody has pressed a key and is waiting.
SECONDS = 0.5
MAX_NAMES = 50


def complete_log(incomplete: str) -> list[str]:
    """Names of logs that begin like this."""
    return _first(lambda client: (row.name for row in client.streams(incomplete)))


def complete_queue(incomplete: str) -> list[str]:
    return _first(lambda client: (row.topic for row in client.topics(incomplete) if row.type == "queue"))


def complete_router(incomplete: str) -> list[str]:
    return _first(lambda client: (row.router for row in client.routers(incomplete)))


def _first(names: Callable[[Client], Iterable[str]]) -> list[str]:
    """None is offered where nobody answers: a shell has no place for errors."""
    url, key = os.environ.get("STRANDLINE_URL", DEFAULT_URL), os.environ.get("STRANDLINE_KEY")
    try:
        with Client(url, key, timeout=SECONDS, patience=0) as client:
            return list(islice(names(client), MAX_NAMES))
    except (StrandlineError, ValueError, httpx.HTTPError):
        return []
