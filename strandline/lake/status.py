"""The status of a lake's pipeline: ``status.json`` in the lake.

The pipeline writes it atomically; the server, the command line and the console read it. It is only informative: the
tables themselves define their contents. Times are milliseconds since 1970.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import msgspec

from strandline.lake.location import Lake
from strandline.late_import import LateModule

if TYPE_CHECKING:
    import obstore.exceptions
else:
    obstore = LateModule("obstore")

NAME = "status.json"

#: How many past rounds, problems and logs are kept: the file must stay small, however long a pipeline runs.
MAX_ROUNDS = 20
MAX_PROBLEMS = 50
MAX_LOGS = 200

State = Literal["starting", "running", "idle", "ended"]


class BadStatus(Exception):
    """The status file is invalid. The message says where it is."""


class StageStatus(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A running stage. Without a ``total``, the number of records is unknown."""

    stage: str
    since: int
    records: int = 0
    total: int | None = None
    bytes: int = 0
    #: Records per second, since the stage began.
    rate: float = 0.0


class StageSummary(msgspec.Struct, kw_only=True):
    """A finished stage."""

    stage: str
    records: int
    bytes: int
    seconds: float
    rate: float


class RoundSummary(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A round. Everything that was acknowledged at ``begin`` is in the lake, unless there is an ``error`` or the round
    was stopped."""

    begin: int
    end: int
    stages: list[StageSummary] = []
    error: str | None = None
    stopped: bool = False

    @property
    def good(self) -> bool:
        return self.error is None and not self.stopped


class LogLag(msgspec.Struct, kw_only=True):
    """The head of a log, and the progress of each table."""

    log: str
    epoch: int
    head: int
    covered: dict[str, int]

    @property
    def behind(self) -> int:
        """The number of records that the table with the least progress lacks."""
        return max(0, self.head - min(self.covered.values(), default=0))


class Lag(msgspec.Struct, kw_only=True, omit_defaults=True):
    """All logs together, and the logs that lag most."""

    logs: int = 0
    #: The number of assigned seqs in all logs, and how many of them each table has.
    heads: int = 0
    covered: dict[str, int] = {}
    #: The sum over all logs of the records that the table with the least progress lacks.
    behind: int = 0
    #: The last applied erasure event.
    erasures: int = 0
    rows: list[LogLag] = []


class PipelineProblem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A problem; with a log and a seq if it is about one."""

    time: int
    stage: str
    message: str
    log: str | None = None
    seq: int | None = None


TableState = Literal["waiting", "running", "failed", "stopped"]


class DeclaredTable(msgspec.Struct, kw_only=True):
    """A declared table, view or sink."""

    name: str
    #: ``streaming_table``, ``materialized_view``, ``temporary_view`` or ``sink``.
    kind: str
    state: TableState = "waiting"
    #: How it is kept: ``append``, ``state``, ``cdc``, ``refresh`` or ``sink``; empty while it is not known.
    mode: str = ""
    #: Why it is kept in this way.
    reason: str = ""
    comment: str = ""
    #: The logs and tables that it reads.
    inputs: list[str] = []
    #: The log that its rows are written to, and the log of rows that failed.
    log: str | None = None
    dead_letter_log: str | None = None
    #: Input rows since the process started.
    rows: int = 0
    #: Records of its logs, and files or commits of its tables, that it has not processed; null if it is not known.
    lag: int | None = None
    #: When it was last brought up to date, and how long that took.
    updated: int | None = None
    seconds: float | None = None
    #: Erasures since it was computed. They do not reach the table; computing it again applies them.
    erasures: int = 0
    failures: int = 0
    error: str | None = None
    #: When it is tried again.
    retry: int | None = None


class DeclaredStatus(msgspec.Struct, kw_only=True):
    """The declared tables of a pipeline, every table after those that it reads."""

    project: str
    directory: str
    tables: list[DeclaredTable] = []
    #: Why the project cannot be run as a whole.
    error: str | None = None


class PipelineStatus(msgspec.Struct, kw_only=True):
    """The pipeline of one lake. Counters start with the lake's first round."""

    #: ``starting``: Spark is not up yet; ``running``: in a round; ``idle``: waits for new records; ``ended``: no
    #: pipeline is running.
    state: State = "ended"
    since: int = 0
    updated: int = 0
    pid: int = 0
    host: str = ""
    master: str = ""
    #: The source of the records: a data directory or the URL of a server.
    source: str = ""
    stages: list[StageStatus] = []
    #: Oldest first.
    rounds: list[RoundSummary] = []
    rounds_total: int = 0
    records_total: dict[str, int] = {}
    problems: list[PipelineProblem] = []
    problems_total: int = 0
    lag: Lag = msgspec.field(default_factory=Lag)
    #: What the machine lacks to run the pipeline, one sentence each.
    missing: list[str] = []
    #: Null for a pipeline without a project.
    declared: DeclaredStatus | None = None

    @property
    def last_good_round(self) -> RoundSummary | None:
        return next((one for one in reversed(self.rounds) if one.good), None)


def read_status(lake: Lake) -> PipelineStatus | None:
    """Return the status; None if there is none yet. Raises OSError if the lake is unreadable, BadStatus if the file is
    invalid."""
    with _errors(lake):
        data = lake.read(NAME)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=PipelineStatus)
    except msgspec.DecodeError as error:
        raise BadStatus(f"{lake.place_of(NAME)} is invalid: {error}") from None


def write_status(lake: Lake, status: PipelineStatus) -> None:
    """Write the status atomically. Raises OSError if it cannot be written."""
    data = msgspec.json.encode(status)
    directory = lake.directory
    if directory is None:
        with _errors(lake):
            lake.write(NAME, data)
        return
    directory.mkdir(parents=True, exist_ok=True)
    temporary = directory / f".{NAME}.{os.getpid()}.tmp"
    # Not flushed: after a power cut, an older status or none is as good, and this runs once a second.
    temporary.write_bytes(data)
    temporary.replace(directory / NAME)


@contextmanager
def _errors(lake: Lake) -> Iterator[None]:
    try:
        yield
    except obstore.exceptions.BaseError as error:
        # The following lines are debug output of the library.
        raise OSError(f"{lake.place_of(NAME)}: {str(error).splitlines()[0]}") from error
