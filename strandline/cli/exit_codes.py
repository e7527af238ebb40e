"""Exit codes: one table for all commands that talk to a server. docs/how-to/cli.md documents it."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import typer
from typer.core import TyperGroup

from strandline.cli.output import say


class Exit(IntEnum):
    FINE = 0
    #: Refused, or failed, for a reason that has no code of its own.
    FAILED = 1
    #: The command makes no sense, to this program or to the server.
    USAGE = 2
    #: What the command is about is not there.
    NOT_FOUND = 3
    #: No server answers.
    UNREACHABLE = 4
    #: The key is missing or wrong, or does not allow this.
    NOT_ALLOWED = 5
    #: Things are not as the command takes them to be: it exists already, it is closed, it is no queue.
    CONFLICT = 6
    #: The server is busy or full; later it may work.
    BUSY = 7


def code_of(error: Exception) -> Exit | None:
    """The exit code for what went wrong; None if that is nobody's doing but the program's."""
    # Whoever gets here has all of it loaded: nothing else could have raised it.
    from strandline import client
    from strandline.engine.errors import EngineError, UnknownLog
    from strandline.sql.statement import QueryFailed

    if isinstance(error, QueryFailed):
        return QUERIES[error.reason]
    #: The first that fits counts.
    by_error: tuple[tuple[type[Exception], Exit], ...] = (
        (client.Unreachable, Exit.UNREACHABLE),
        (client.NotAuthenticated, Exit.NOT_ALLOWED),
        (client.Forbidden, Exit.NOT_ALLOWED),
        (client.NotFound, Exit.NOT_FOUND),
        (client.Gone, Exit.NOT_FOUND),
        (UnknownLog, Exit.NOT_FOUND),
        (client.Conflict, Exit.CONFLICT),
        (client.Busy, Exit.BUSY),
        (client.Full, Exit.BUSY),
        (client.BadRequest, Exit.USAGE),
        (client.StrandlineError, Exit.FAILED),
        (EngineError, Exit.FAILED),
        (OSError, Exit.FAILED),
    )
    return next((code for kind, code in by_error if isinstance(error, kind)), None)


#: The exit code for every reason that a query fails for.
QUERIES = {
    "statement": Exit.USAGE,
    "not_found": Exit.NOT_FOUND,
    "not_allowed": Exit.NOT_ALLOWED,
    "conflict": Exit.CONFLICT,
    "failed": Exit.FAILED,
}


class CommandFailed(Exception):
    """Said by a command itself: one line for people, and the exit code."""

    def __init__(self, message: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.code = code


# --- What goes wrong on purpose is one line on standard error and an exit code, never a traceback -------------------


class Catching(TyperGroup):
    """The commands, with what becomes of their errors."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except BrokenPipeError:
            raise  # whoever read what is printed has read enough: the caller ends the process in silence
        except CommandFailed as error:
            say(str(error))
            raise typer.Exit(error.code) from None
        except Exception as error:
            code = code_of(error)
            if code is None:
                raise
            say(str(error))
            raise typer.Exit(code) from None
