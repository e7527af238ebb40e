"""Connections to a server, the state of a queue, and completion of names in the shell."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

import typer

from strandline.cli.exit_codes import CommandFailed, Exit, naming
from strandline.cli.server_choice import environment_server

if TYPE_CHECKING:
    from strandline.client import Client
    from strandline.client.topic_types import TopicState

#: How long a request is retried: long enough for a server that restarts, and short enough for a person who waits.
PATIENCE_SECONDS = 3.0


def connect(url: str, api_key: str | None, *, patience: float = PATIENCE_SECONDS) -> Client:
    """Raises BadParameter if the URL is not valid."""
    from strandline.client import Client

    try:
        return Client(url, api_key, patience=patience)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--url") from None


def queue_state(client: Client, name: str) -> TopicState:
    """Raises CommandFailed if there is no queue of this name."""
    with naming("queue", name):
        state = client.topic(name).state(touch=False)
    if state.queue is None:
        raise CommandFailed(
            f"{name!r} is not a queue; create a queue with `strandline log create NAME --type queue`", Exit.CONFLICT
        )
    return state


# --- completion of names in the shell -------------------------------------------------------------------------------

#: A person has pressed the tab key and waits.
SECONDS = 0.5
MAX_NAMES = 50


def complete_log(incomplete: str) -> list[str]:
    """Names of logs that start with this."""
    return _first(lambda client: (row.name for row in client.streams(incomplete)))


def complete_queue(incomplete: str) -> list[str]:
    return _first(lambda client: (row.topic for row in client.topics(incomplete) if row.type == "queue"))


def complete_consumer(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of consumers of the log that the command names."""
    log = ctx.params.get("log")
    return consumers_of(log, incomplete) if log else []


def consumers_of(log: str, incomplete: str) -> list[str]:
    return _first(lambda client: (name for name in client.topic(log).consumers() if name.startswith(incomplete)))


def complete_router(incomplete: str) -> list[str]:
    return _first(lambda client: (row.router for row in client.routers(incomplete)))


def _first(names: Callable[[Client], Iterable[str]]) -> list[str]:
    """The first names, or none if the server does not answer: a shell has no place for errors."""
    from strandline.client import Client, StrandlineError

    try:
        url, key = environment_server()
        with Client(url, key, timeout=SECONDS, patience=0) as client:
            return list(islice(names(client), MAX_NAMES))
    except (CommandFailed, StrandlineError, ValueError):
        return []
