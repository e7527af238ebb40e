"""Exit codes: one table for all commands that talk to a server. The guide to the command line documents it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import typer

from strandline.cli.command_class import Group
from strandline.cli.output import say


class Exit(IntEnum):
    FINE = 0
    #: Refused or failed, for a reason that has no code of its own.
    FAILED = 1
    #: Invalid arguments, or a request that the server rejects as invalid.
    USAGE = 2
    #: The log, queue, router or lake does not exist.
    NOT_FOUND = 3
    #: The server does not answer.
    UNREACHABLE = 4
    #: The API key is missing, wrong, or does not allow the operation.
    NOT_ALLOWED = 5
    #: The state of the server does not allow the operation: a log already exists, is closed, or is not a queue.
    CONFLICT = 6
    #: The server is busy or full; try again later.
    BUSY = 7


def code_of(error: Exception) -> Exit | None:
    """The exit code for an error; None for a bug in this program."""
    from strandline.client import errors as client

    sql = sys.modules.get("strandline.sql.statement")
    if sql is not None and isinstance(error, sql.QueryFailed):
        return QUERIES[error.reason]
    # If it is not loaded, it did not raise the error. Loading the engine takes longer than most commands.
    engine = sys.modules.get("strandline.engine.errors")
    # The first match counts.
    by_error: tuple[tuple[type[Exception], Exit], ...] = (
        (client.Unreachable, Exit.UNREACHABLE),
        (client.NotAuthenticated, Exit.NOT_ALLOWED),
        (client.Forbidden, Exit.NOT_ALLOWED),
        (client.NotFound, Exit.NOT_FOUND),
        (client.Gone, Exit.NOT_FOUND),
        *(() if engine is None else ((engine.UnknownLog, Exit.NOT_FOUND),)),
        (client.Conflict, Exit.CONFLICT),
        (client.Busy, Exit.BUSY),
        (client.Full, Exit.BUSY),
        (client.BadRequest, Exit.USAGE),
        (client.StrandlineError, Exit.FAILED),
        *(() if engine is None else ((engine.EngineError, Exit.FAILED),)),
        (OSError, Exit.FAILED),
    )
    return next((code for kind, code in by_error if isinstance(error, kind)), None)


#: The exit code for each reason of a failed query.
QUERIES = {
    "statement": Exit.USAGE,
    "not_found": Exit.NOT_FOUND,
    "not_allowed": Exit.NOT_ALLOWED,
    "conflict": Exit.CONFLICT,
    "failed": Exit.FAILED,
}


class CommandFailed(Exception):
    """Raised by a command: one line for the user, and the exit code."""

    def __init__(self, message: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.code = code


#: The command that lists all names of a kind.
_LISTED_BY = {
    "log": "strandline log ls",
    "queue": "strandline queue ls",
    "router": "strandline router ls",
    "API key": "strandline keys ls",
    "connection": "strandline clients ls",
    "subscription": "strandline subscription ls",
}


def not_found(kind: str, name: str) -> CommandFailed:
    """The error for a log, queue or router that does not exist."""
    return CommandFailed(f"{kind} {name!r} not found; list the names with `{_LISTED_BY[kind]}`", Exit.NOT_FOUND)


@contextmanager
def naming(kind: str, name: str) -> Iterator[None]:
    """Requests about one log, queue or router: a 404 becomes :func:`not_found`."""
    from strandline.client.errors import NotFound

    try:
        yield
    except NotFound:
        raise not_found(kind, name) from None


# --- An expected error is one line on standard error and an exit code, never a traceback ----------------------------


class CommandGroup(Group):
    """The group of all commands: it turns their errors into messages and exit codes."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except BrokenPipeError:
            raise  # the reader of the output has closed it: the caller ends the process without a message
        except CommandFailed as error:
            say(str(error))
            raise typer.Exit(error.code) from None
        except Exception as error:
            code = code_of(error)
            if code is None:
                raise
            say(f"{error}{_ADVICE.get(code, '')}")
            raise typer.Exit(code) from None


#: What to do about an error, by its exit code.
_ADVICE = {
    Exit.UNREACHABLE: "; start the server with `strandline serve`, or set --url or STRANDLINE_URL to its URL",
    Exit.NOT_ALLOWED: "; set --api-key or STRANDLINE_KEY to an API key that allows this operation",
}
