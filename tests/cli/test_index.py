"""``strandline index``: propose, install, show and remove the search configuration of a log."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.command_line import Cli

from strandline.cli import index
from strandline.cli.exit_codes import CommandFailed, Exit
from strandline.cli.index import STALLED_SECONDS, progress_text, wait_until_indexed
from strandline.client import IndexProgress

RECORDS = [
    {"at": "2026-11-15T10:00:10Z", "level": "error", "ms": 250, "note": "the bank did not answer"},
    {"at": "2026-11-15T10:00:20Z", "level": "info", "ms": 10, "note": "paid"},
]
LEVEL: dict[str, Any] = {
    "fields": {"level": {"kind": "keyword", "exact": True, "bindings": [{"version": 1, "jsonPointer": "/level"}]}}
}


@pytest.fixture
def log(cli: Cli, name: str) -> str:
    """A log with records."""
    cli.lines("log", "append", f"{name}:requests", *map(json.dumps, RECORDS))
    return f"{name}:requests"


@pytest.fixture
def level(tmp_path: Path) -> Path:
    file = tmp_path / "search.json"
    file.write_text(json.dumps(LEVEL))
    return file


def test_fields_are_proposed_and_installed(cli: Cli, log: str) -> None:
    *rows, summary = cli.words("index", "infer", log)
    assert [row[:4] for row in rows[1:]] == [
        ["at", "date", "/at", "2"],
        ["level", "keyword", "/level", "2"],
        ["ms", "integer", "/ms", "2"],
        ["note", "text", "/note", "2"],
    ]
    assert " ".join(summary) == (
        f"4 fields proposed from 2 records; install with: strandline index infer {log} --apply"
    )
    cli.fails(2, "search", log, "level:error")
    assert cli.lines("index", "infer", log, "--apply")[-1] == "installed 4 new fields"
    assert cli.json("search", log, "level:error bank")["hits"][0]["seq"] == 1
    assert cli.json("search", log, "has:ms", "--since", "2026-11-15T10:00:15Z")["hits"][0]["seq"] == 2
    assert cli.lines("index", "infer", log) == [
        f"no new fields: the last 2 records of log {log} have no further members that can be searched"
    ]


def test_a_proposal_can_be_changed_before_it_is_installed(cli: Cli, log: str) -> None:
    found = cli.json("index", "infer", log)
    assert (found["applied"], found["records"]) == (False, 2)
    search = found["search"]
    del search["fields"]["note"], search["defaultFields"]
    printed = cli.lines("index", "set", log, "-", input=json.dumps(search))
    assert printed == [f"log {log} has 3 searchable fields"]
    assert cli.json("index", "show", log)["search"] == search


def test_an_inference_keeps_the_installed_fields(cli: Cli, log: str, level: Path) -> None:
    assert cli.json("index", "set", log, level) == {"log": log, "search": LEVEL}
    found = cli.json("index", "infer", log, "--apply", "--no-wait")
    assert found["applied"]
    assert [field["name"] for field in found["fields"]] == ["at", "ms", "note"]
    shown = cli.json("index", "show", log)["search"]
    assert shown == found["search"]
    assert shown["fields"]["level"] == LEVEL["fields"]["level"]


def test_a_configuration_is_shown_and_removed(cli: Cli, log: str, level: Path) -> None:
    assert cli.lines("index", "show", log) == [
        f"log {log} has no search configuration; propose one with: strandline index infer {log}"
    ]
    assert cli.json("index", "show", log) == {"log": log, "search": None, "progress": None}
    cli.lines("index", "infer", log, "--apply")
    rows = cli.words("index", "show", log, "--wait")
    assert rows[1] == ["at", "date", "/at", "exact", "column", "sortable", "time"]
    assert rows[4] == ["note", "text", "/note", "prefix", "positions", "default"]
    assert cli.lines("index", "remove", log) == [f"removed the search configuration of log {log}"]
    assert "has no search configuration" in cli.fails(6, "index", "remove", log)
    assert cli.json("index", "set", log, level)["search"] == LEVEL
    assert cli.json("index", "remove", log) == {"log": log, "search": None}


def test_a_name_with_a_slash(cli: Cli, name: str) -> None:
    log = f"shop/{name}"
    assert "not found" in cli.fails(3, "index", "infer", log)
    cli.lines("log", "create", log, "--content-type", "text/plain")
    assert cli.lines("index", "infer", log) == [
        f"no fields proposed: log {log} has no records that are JSON objects; append some first"
    ]


def test_what_cannot_be_installed_says_why_and_changes_nothing(cli: Cli, log: str, tmp_path: Path) -> None:
    for command in (("infer",), ("show",), ("remove",), ("set", "-")):
        assert "log 'no-such-log' not found" in cli.fails(
            3, "index", command[0], "no-such-log", *command[1:], input="{}"
        )
    assert "cannot read" in cli.fails(2, "index", "set", log, tmp_path / "none.json")
    assert "standard input is not valid JSON" in cli.fails(2, "index", "set", log, "-", input="{")
    assert "expected a JSON object" in cli.fails(2, "index", "set", log, "-", input="null")
    assert "search.fields must be a non-empty object" in cli.fails(2, "index", "set", log, "-", input='{"fields":{}}')
    assert "search.schema is not supported" in cli.fails(2, "index", "set", log, "-", input='{"schema":{}}')
    assert cli.json("index", "show", log)["search"] is None


# --- progress -------------------------------------------------------------------------------------------------------


def progress(indexed: int, rate: float | None = None, remaining: int | None = None) -> IndexProgress:
    return IndexProgress(
        indexed_records=indexed, records=9000, records_per_second=rate, remaining_ms=remaining, complete=indexed == 9000
    )


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (progress(0), "0 of 9,000 records"),
        (progress(5000, 2500.4, 1600), "5,000 of 9,000 records, 2,500/s, 1s remaining"),
        (progress(5000, 12.0, 3_720_000), "5,000 of 9,000 records, 12/s, 1h 2m remaining"),
        (progress(9000, 2500.0, 0), "9,000 of 9,000 records"),
        (IndexProgress(indexed_records=1, records=1, complete=True), "1 of 1 record"),
    ],
)
def test_progress_in_words(at: IndexProgress, text: str) -> None:
    assert progress_text(at) == text


class Indexing:
    """A log that is being indexed, and a clock that moves when someone sleeps."""

    def __init__(self, *steps: IndexProgress | None) -> None:
        self._steps = list(steps)
        self.seconds = 0.0
        self.shown: list[int] = []

    def index_progress(self) -> IndexProgress | None:
        return self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def wait(self) -> IndexProgress | None:
        show: Callable[[IndexProgress], None] = lambda one: self.shown.append(one.indexed_records)  # noqa: E731
        return wait_until_indexed(self.index_progress, show, sleep=self.sleep, now=lambda: self.seconds)


def test_a_command_waits_until_the_log_is_indexed() -> None:
    log = Indexing(progress(0), progress(4000), progress(4000), progress(9000))
    assert log.wait() == progress(9000)
    assert log.shown == [0, 4000, 4000, 9000]


def test_without_a_progress_there_is_nothing_to_wait_for() -> None:
    assert Indexing(None).wait() is None


def test_an_index_that_does_not_advance_is_not_waited_for() -> None:
    log = Indexing(progress(0), progress(4000, 10.0))
    with pytest.raises(CommandFailed, match="4,000 of 9,000 records") as caught:
        log.wait()
    assert caught.value.code == Exit.BUSY
    assert STALLED_SECONDS <= log.seconds < STALLED_SECONDS + 2


def test_the_bar_shows_records_rate_and_remaining_time(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, color_system=None, legacy_windows=False)
    monkeypatch.setattr(index, "open_console", lambda **_: console)
    monkeypatch.setattr(index, "POLL_SECONDS", 0.0)
    log: Any = Indexing(progress(4500, 2500.0, 1800), progress(9000))
    assert index._waited(log) == progress(9000)
    assert "indexing" in screen.getvalue()
    assert "9,000 of 9,000 records" in screen.getvalue()
