"""What exit codes mean: one table for all commands that talk to a server (docs/cli.md has it for people)."""

from __future__ import annotations

from enum import IntEnum


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
    from strandline.history import talking

    #: The first that fits counts.
    by_error: tuple[tuple[type[Exception], Exit], ...] = (
        (client.Unreachable, Exit.UNREACHABLE),
        (talking.ServerUnreachable, Exit.UNREACHABLE),
        (client.NotAuthenticated, Exit.NOT_ALLOWED),
        (client.Forbidden, Exit.NOT_ALLOWED),
        (talking.KeyRefused, Exit.NOT_ALLOWED),
        (client.NotFound, Exit.NOT_FOUND),
        (client.Gone, Exit.NOT_FOUND),
        (UnknownLog, Exit.NOT_FOUND),
        (client.Conflict, Exit.CONFLICT),
        (talking.LogReplaced, Exit.CONFLICT),
        (client.Busy, Exit.BUSY),
        (client.Full, Exit.BUSY),
        (client.BadRequest, Exit.USAGE),
        (client.StrandlineError, Exit.FAILED),
        (talking.ServerFailure, Exit.FAILED),
        (EngineError, Exit.FAILED),
        (OSError, Exit.FAILED),
    )
    return next((code for kind, code in by_error if isinstance(error, kind)), None)


class CommandFailed(Exception):
    """Said by a command itself: one line for people, and the exit code."""

    def __init__(self, message: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.code = code
