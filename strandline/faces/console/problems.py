"""Every error that the answers of this face can have, by its code."""

from __future__ import annotations

from strandline.faces.arrow.problems import PROBLEMS as ARROW_PROBLEMS
from strandline.faces.describing import Problem

_SHARED = (
    "invalid_request", "unauthorized", "forbidden", "log_not_found", "throttled", "damaged_data", "internal",
    "not_ready", "shutting_down",
)  # fmt: skip

PROBLEMS: dict[str, Problem] = {
    **{code: ARROW_PROBLEMS[code] for code in _SHARED},
    "not_found": Problem(404, "The console has no such file."),
    "not_acceptable": Problem(406, "It is an event stream, and the client does not accept one."),
    "not_a_queue": Problem(409, "Only a queue has jobs."),
}
