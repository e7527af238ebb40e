"""How the pipeline of a lake is doing, for everybody who looks: ``status.json`` in the lake.

Whoever runs the pipeline writes it, atomically; the server, the command line and the console read it. It is a picture
and no promise: what a table holds, the table itself says. Times are milliseconds since 1970.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import msgspec
from obstore.exceptions import BaseError

from strandline.lake.location import Lake

NAME = "status.json"

#: What is kept of the past, and of logs: the file has to stay small, however long a pipeline runs.
MAX_ROUNDS = 20
MAX_PROBLEMS = 50
MAX_LOGS = 200

State = Literal["starting", "running", "idle", "ended"]


class BadStatus(Exception):
    """There is a status, but it cannot be understood. The message says where."""


class StageStatus(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A stage that is under way. Without a ``total`` nobody knows how many records it will be."""

    stage: str
    since: int
    records: int = 0
    total: int | None = None
    bytes: int = 0
    #: Records per second, since the stage began.
    rate: float = 0.0


class StageSummary(msgspec.Struct, kw_only=True):
    """A stage that is over."""

    stage: str
    records: int
    bytes: int
    seconds: float
    rate: float


class RoundSummary(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Everything that was acknowledged at ``begin`` is in the lake, unless there is an ``error`` or it was stopped."""

    begin: int
    end: int
    stages: list[StageSummary] = []
    error: str | None = None
    stopped: bool = False

    @property
    def good(self) -> bool:
        return self.error is None and not self.stopped


class LogLag(msgspec.Struct, kw_only=True):
    """How far a log goes, and how far each table has it."""

    log: str
    epoch: int
    head: int
    covered: dict[str, int]

    @property
    def behind(self) -> int:
        """Records that the table which has the least does not have yet."""
        return max(0, self.head - min(self.covered.values(), default=0))


class Lag(msgspec.Struct, kw_only=True, omit_defaults=True):
    """All logs together, and those that are furthest behind one by one."""

    logs: int = 0
    #: The seqs handed out in all of these logs, and how many of them each table has.
    heads: int = 0
    covered: dict[str, int] = {}
    #: The sum of what is missing, log by log, in the table that has the least of it.
    behind: int = 0
    #: Up to which seq of the erasures the lake has followed them.
    erasures: int = 0
    rows: list[LogLag] = []


class PipelineProblem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Something that went wrong; with a log and a seq where it is about one."""

    time: int
    stage: str
    message: str
    log: str | None = None
    seq: int | None = None


class PipelineStatus(msgspec.Struct, kw_only=True):
    """The pipeline of one lake. Counters count from the lake's first round on."""

    #: ``starting``: Spark is not up yet; ``running``: in a round; ``idle``: waits for something new; ``ended``: nobody
    #: works on the lake.
    state: State = "ended"
    since: int = 0
    updated: int = 0
    pid: int = 0
    host: str = ""
    master: str = ""
    #: What is processed: a data directory or the URL of a server.
    source: str = ""
    stages: list[StageStatus] = []
    #: The newest last.
    rounds: list[RoundSummary] = []
    rounds_total: int = 0
    records_total: dict[str, int] = {}
    problems: list[PipelineProblem] = []
    problems_total: int = 0
    lag: Lag = msgspec.field(default_factory=Lag)
    #: What the machine lacks for the pipeline to run, one sentence each.
    missing: list[str] = []

    @property
    def last_good_round(self) -> RoundSummary | None:
        return next((one for one in reversed(self.rounds) if one.good), None)


def read_status(lake: Lake) -> PipelineStatus | None:
    """None when there is none yet; raises OSError when the lake cannot be read, BadStatus when it makes no sense."""
    with _errors(lake):
        data = lake.read(NAME)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=PipelineStatus)
    except msgspec.DecodeError as error:
        raise BadStatus(f"{lake.place_of(NAME)} cannot be understood: {error}") from None


def write_status(lake: Lake, status: PipelineStatus) -> None:
    """Readers find the old one or the new one, whole. Raises OSError when it cannot be written."""
    data = msgspec.json.encode(status)
    directory = lake.directory
    if directory is None:
        with _errors(lake):
            lake.write(NAME, data)
        return
    directory.mkdir(parents=True, exist_ok=True)
    temporary = directory / f".{NAME}.{os.getpid()}.tmp"
    # Not flushed: after a power cut an older one, or none, is as good, and this comes once a second.
    temporary.write_bytes(data)
    temporary.replace(directory / NAME)


@contextmanager
def _errors(lake: Lake) -> Iterator[None]:
    try:
        yield
    except BaseError as error:
        # What follows on further lines is a dump of the library's internals.
        raise OSError(f"{lake.place_of(NAME)}: {str(error).splitlines()[0]}") from error
