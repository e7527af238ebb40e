"""The progress of writers: a note of the log for each writer, changed in one step with an append.

A request states the new progress of the writer and the progress that it expects. If the expectation is wrong, another
instance of the writer was faster or the request is a repetition: nothing is appended, and the answer contains the
current progress. So every record is appended once, even if the writer or the server fails in between.
"""

from __future__ import annotations

from typing import Any

import msgspec

from strandline.engine import Log
from strandline.engine.record import Appended
from strandline.engine.state.notes import MAX_NAME
from strandline.protocols.arrow.context import ArrowContext
from strandline.protocols.arrow.errors import progress_conflict
from strandline.protocols.arrow.wire import ForgottenAnswer, Progress
from strandline.service.catalog import check_change
from strandline.service.http import Call, Later, Reply
from strandline.service.parameters import json_header, name_of
from strandline.service.problems import invalid

PREFIX = "progress/"
MAX_WRITER = MAX_NAME - len(PREFIX)
AFTER = "Strandline-Progress"
BEFORE = "Strandline-Progress-Before"
#: The header's value for a writer that has no progress yet.
ABSENT = b"absent"


def writer_of(call: Call) -> str | None:
    writer = call.query.get("writer")
    if writer is None:
        return None
    if not 1 <= len(writer) <= MAX_WRITER or not writer.isprintable():
        raise invalid(f"writer must be 1 to {MAX_WRITER} printable characters")
    return writer


def progress_of(log: Log, writer: str) -> Progress | None:
    progress: Progress | None = log.notes.get(PREFIX + writer)
    return progress


class Advance(msgspec.Struct, frozen=True):
    """A step of a writer; ``before`` is None for its first step."""

    writer: str
    before: Progress | None
    after: Progress

    @classmethod
    def of(cls, call: Call) -> Advance | None:
        """The step that a request describes; None if the request names no writer."""
        writer, after = writer_of(call), json_header(call, AFTER)
        said = call.head.headers.get(BEFORE.lower().encode(), ABSENT).strip()
        before = None if said == ABSENT else json_header(call, BEFORE)
        if after is None and (writer is not None or before is not None):
            raise invalid(f"the header {AFTER} is missing: a writer must send its progress")
        if after is None:
            return None
        if writer is None:
            raise invalid(f"writer is missing: {AFTER} is the progress of a writer")
        if _same(before, after):
            raise invalid(f"{AFTER} must differ from {BEFORE}, so that a repeated request is recognised")
        return cls(writer, before, after)

    def check(self, log: Log) -> None:
        """Refuse the step unless the current progress is ``before``. The caller holds the engine's lock until the
        append is made."""
        current = progress_of(log, self.writer)
        if not _same(current, self.before):
            raise progress_conflict(self.writer, current)

    @property
    def notes(self) -> dict[str, Any]:
        return {PREFIX + self.writer: self.after}


def _same(one: Progress | None, other: Progress | None) -> bool:
    """Compare as JSON, where 1, 1.0 and true differ."""
    return _canonical(one) == _canonical(other)


def _canonical(progress: Progress | None) -> bytes:
    return msgspec.json.encode(progress, order="deterministic")


class Forgetting:
    def __init__(self, context: ArrowContext) -> None:
        self._context = context

    def forget(self, call: Call) -> Reply | Later:
        """DELETE /arrow/progress/{name}"""
        log, writer = self._context.log(name_of(call), call.access), writer_of(call)
        if writer is None:
            raise invalid("writer is missing: name the writer whose progress to delete")
        check_change(log)
        if progress_of(log, writer) is None:
            return _forgotten(False)

        def reply(_: Appended) -> Reply:
            return _forgotten(True)

        return self._context.kernel.admission.after(log.note({PREFIX + writer: None}), reply)


def _forgotten(forgotten: bool) -> Reply:
    return Reply(msgspec.json.encode(ForgottenAnswer(forgotten=forgotten)))
