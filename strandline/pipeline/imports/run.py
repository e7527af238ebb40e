"""Runs an import of files."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import msgspec

from strandline.engine.errors import NoDataDirectory, UnknownLog
from strandline.history.log_info import LogInfo
from strandline.history.source import History, open_history
from strandline.lake.location import Lake
from strandline.lake.reporter import Reporter
from strandline.lake.reporter import StageProgress as Progressing
from strandline.pipeline.imports.files import RowShape, SourceFile, SourcePart, UnreadableFile, identity, parts_of
from strandline.pipeline.imports.staging import (
    MAX_FAULTS,
    ImportAppender,
    ImportFailed,
    PartMarks,
    Staged,
    StageItem,
    stage,
    staged_batches,
)
from strandline.pipeline.source.options import LogLocation
from strandline.pipeline.source.targets import AppendTarget
from strandline.pipeline.tasks import Workers

CHECKING, STAGE = "check", "import"
#: From this total size of the files on, an import uses Spark if it is installed. One core imports 11 MB of JSON lines
#: per second. Tasks of Spark read and check the rows, but the driver appends all of them, so that Spark on the two
#: cores of a small machine is not faster at 200 MB.
SPARK_FROM_BYTES = 1 << 30

#: ``stop``: append nothing if any row is invalid. ``skip``: leave out invalid rows and report them.
Bad = Literal["stop", "skip"]


class BadPlace(msgspec.Struct, frozen=True):
    """The position of an invalid row, and the reason."""

    path: str
    number: int
    why: str


class ImportReport(msgspec.Struct, kw_only=True):
    """``appended`` counts records by log; ``there_before`` counts records that an earlier run appended. ``places`` has
    the first invalid rows. ``stopped``: there were invalid rows, so nothing was appended. ``lost`` counts the offsets
    that a Kafka broker removed before they were imported."""

    job: str
    files: int
    records: int = 0
    appended: dict[str, int] = {}
    there_before: int = 0
    bad: int = 0
    places: list[BadPlace] = []
    stopped: bool = False
    lost: int = 0


def import_files(
    workers: Workers,
    files: Sequence[SourceFile],
    shape: RowShape,
    target: AppendTarget,
    reporter: Reporter,
    *,
    bad: Bad = "stop",
    job: str = "",
    staging: str | None = None,
) -> ImportReport:
    """Append the rows of files in order, once: a run with the same unchanged files and the same options continues after
    an earlier one. Another ``job`` name imports them again. ``staging`` is a location that tasks can write to and this
    process can read.

    With ``stop``, nothing is appended if any row is invalid. Raises ImportFailed, and UnreadableFile, before anything
    is appended unless a file changes during the import."""
    running = _Import(workers, files, shape, target, reporter, job)
    with staging_place(staging) as place:
        return running.run(place, bad)


class _Import:
    def __init__(
        self,
        workers: Workers,
        files: Sequence[SourceFile],
        shape: RowShape,
        target: AppendTarget,
        reporter: Reporter,
        job: str,
    ) -> None:
        self._workers = workers
        self._shape = shape
        self._reporter = reporter
        self._job = identity(files, shape, job)
        self._appender = ImportAppender(target, f"import-{self._job}", shape.has_times)
        self._parts = parts_of(files, shape.format)
        self._report = ImportReport(job=self._job, files=len(files))
        self._faults = _Faults()

    def run(self, place: Lake, bad: Bad) -> ImportReport:
        parts = self._left()
        # An import that fits into one wave is staged completely before anything is appended, so one pass is enough.
        if bad == "stop" and len(parts) > self._workers.wave and self._check(parts):
            return self._result(stopped=True)
        with self._reporter.stage(STAGE) as stage:
            for wave in self._staged(parts, place):
                if bad == "stop" and self._faults.count:
                    return self._result(stopped=not self._appender.appended)
                for staged in wave:
                    self._append(staged, place, stage)
        return self._result()

    def _left(self) -> list[SourcePart]:
        """The parts that may have rows to append. If rows go to several logs, these are all parts."""
        if not self._shape.log:
            return self._parts
        known = self._appender.known(self._shape.log)
        return self._parts if known is None else self._parts[known["part"] :]

    def _check(self, parts: Sequence[SourcePart]) -> bool:
        """Whether there are invalid rows."""
        items = [StageItem(part, self._shape) for part in parts]
        with self._reporter.stage(CHECKING) as stage_:
            for wave in self._workers.waves(stage, items, StageItem, Staged):
                self._look_at(wave)
                stage_.advance(sum(staged.rows for staged in wave))
        return self._faults.count > 0

    def _staged(self, parts: Sequence[SourcePart], place: Lake) -> Iterator[list[Staged]]:
        self._faults = _Faults()
        items = [StageItem(part, self._shape, place) for part in parts]
        for wave in self._workers.waves(stage, items, StageItem, Staged):
            wave.sort(key=lambda staged: staged.part.number)
            self._look_at(wave)
            yield wave

    def _look_at(self, wave: list[Staged]) -> None:
        wave.sort(key=lambda staged: staged.part.number)
        for staged in wave:
            if staged.unreadable:
                raise UnreadableFile(staged.unreadable)
            self._faults.add(staged)

    def _append(self, staged: Staged, place: Lake, stage_: Progressing) -> None:
        if not staged.name:
            return
        marks = PartMarks(staged.part.number)
        for batch in staged_batches(place, staged.name):
            stage_.advance(self._appender.append(batch, marks), batch.nbytes)
        place.remove([staged.name])

    def _result(self, stopped: bool = False) -> ImportReport:
        report = self._report
        report.appended = self._appender.appended
        report.records = sum(report.appended.values())
        report.there_before = self._appender.passed
        report.bad, report.places, report.stopped = self._faults.count, self._faults.places, stopped
        if not stopped and report.bad and not report.records and not report.there_before:
            raise ImportFailed(f"all {report.bad} rows are invalid; the first is {_described(report.places[0])}")
        return report


def _described(place: BadPlace) -> str:
    return f"{place.path}:{place.number}: {place.why}"


class _Faults:
    """Invalid rows, with their numbers in the whole file if everything before them was read."""

    def __init__(self) -> None:
        self.count = 0
        self.places: list[BadPlace] = []
        self._lines: dict[str, int] = {}

    def add(self, staged: Staged) -> None:
        path = staged.part.file.path
        before = self._lines.get(path)
        if before is None and staged.part.start:
            path, before = f"{path} (from byte or row group {staged.part.start})", 0
        self.count += staged.bad
        for fault in staged.faults[: MAX_FAULTS - len(self.places)]:
            self.places.append(BadPlace(path, (before or 0) + fault.number, fault.why))
        self._lines[staged.part.file.path] = (before or 0) + staged.lines


@contextmanager
def staging_place(staging: str | None) -> Iterator[Lake]:
    """Where records are staged: in a temporary directory of this machine, or at the given location."""
    if staging is None:
        with tempfile.TemporaryDirectory(prefix="strandline-import-") as directory:
            yield Lake.at(directory)
        return
    place = Lake.at(f"{staging.rstrip('/')}/import-{uuid.uuid4().hex}")
    if place.directory is not None:
        place.directory.mkdir(parents=True)
    try:
        yield place
    finally:
        place.remove(place.names(""))
        if place.directory is not None:
            place.directory.rmdir()


# --- Properties of the target logs ----------------------------------------------------------------------------------


def knowing(shape: RowShape, place: LogLocation) -> RowShape:
    """The shape, with the logs whose payloads are not JSON."""
    try:
        history = open_history(path=place.path, url=place.url, key=place.key, cold_url=place.cold)
    except NoDataDirectory:
        return shape  # the directory is created later
    try:
        names = [info.name for info in _logs(history, shape) if info.media_type != "application/json"]
    finally:
        history.close()
    return msgspec.structs.replace(shape, not_json=names)


def _logs(history: History, shape: RowShape) -> list[LogInfo]:
    if not shape.log:
        return history.logs()
    try:
        return [history.log(shape.log)]
    except UnknownLog:
        return []
