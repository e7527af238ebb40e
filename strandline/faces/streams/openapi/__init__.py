"""The protocol's routes, described for those who call them; one entry per route."""

from __future__ import annotations

from strandline.faces.describing import Described
from strandline.faces.streams.errors import CODES
from strandline.faces.streams.openapi.answers import StreamErrorAnswer
from strandline.faces.streams.problems import PROBLEMS

STREAMS = Described(
    name="streams",
    groups={},
    operations={},
    problems=PROBLEMS,
    error=StreamErrorAnswer,
    codes=CODES,
)
