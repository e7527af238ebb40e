"""What exit codes mean: one table for all commands that talk to a server (docs/cli.md has it for people)."""

from __future__ import annotations

from enum import IntEnum

from strandline.client import (
    BadRequest,
    Busy,
    Conflict,
    Forbidden,
    Full,
    Gone,
    NotAuthenticated,
    NotFound,
    Unreachable,
)
from strandline.engine.errors import UnknownLog
from strandline.history.talking import KeyRefused, LogReplaced, ServerUnreachable


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


#: The first that fits counts.
_BY_ERROR: tuple[tuple[type[Exception], Exit], ...] = (
    (Unreachable, Exit.UNREACHABLE),
    (ServerUnreachable, Exit.UNREACHABLE),
    (NotAuthenticated, Exit.NOT_ALLOWED),
    (Forbidden, Exit.NOT_ALLOWED),
    (KeyRefused, Exit.NOT_ALLOWED),
    (NotFound, Exit.NOT_FOUND),
    (Gone, Exit.NOT_FOUND),
    (UnknownLog, Exit.NOT_FOUND),
    (Conflict, Exit.CONFLICT),
    (LogReplaced, Exit.CONFLICT),
    (Busy, Exit.BUSY),
    (Full, Exit.BUSY),
    (BadRequest, Exit.USAGE),
)


def code_of(error: Exception) -> Exit:
    """The exit code for what went wrong."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), Exit.FAILED)


class CommandFailed(Exception):
    """Said by a command itself: one line for people, and the exit code."""

    def __init__(self, message: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.code = code
