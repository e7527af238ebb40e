from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command_line import Cli

from strandline.cli.search import bar_of, marked, words_of

SEARCH = {
    "schema": {"type": "object"},
    "search": {
        "primaryTimestampField": "at",
        "fields": {
            "at": {"kind": "date", "column": True, "exact": True},
            "level": {"kind": "keyword", "exact": True},
            "ms": {"kind": "integer", "column": True, "sortable": True, "aggregatable": True, "exact": True},
            "note": {"kind": "text", "positions": True, "analyzer": "unicode_word_v1"},
        },
        "rollups": {
            "load": {
                "dimensions": ["level"],
                "intervals": ["1h", "1m"],
                "measures": {"requests": {"kind": "count"}, "ms": {"kind": "summary", "field": "ms"}},
            }
        },
    },
}
for _name, _field in SEARCH["search"]["fields"].items():  # type: ignore[index]
    _field["bindings"] = [{"version": 1, "jsonPointer": f"/{_name}"}]

RECORDS = [
    {"at": "2026-11-15T10:00:10Z", "level": "error", "ms": 250, "note": "the bank did not answer"},
    {"at": "2026-11-15T10:00:20Z", "level": "info", "ms": 10, "note": "paid"},
    {"at": "2026-11-15T10:02:30Z", "level": "error", "ms": 500, "note": "no answer"},
]
DAY = ("--since", "2026-11-15", "--until", "2026-11-16")


@pytest.fixture
def log(cli: Cli, name: str, tmp_path: Path) -> str:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(SEARCH))
    cli.lines("log", "create", name, "--schema", schema)
    cli.lines("log", "append", name, *(json.dumps(record) for record in RECORDS))
    return name


def test_records_are_found(cli: Cli, log: str) -> None:
    *hits, summary = cli.lines("search", log, "level:error answer", "--sort", "ms:asc")
    assert ([line.split()[0] for line in hits], summary) == (["1", "3"], "2 hits")
    found = cli.json("search", log, "level:error", "--limit", 1, "--sort", "ms:desc")
    assert ([hit["seq"] for hit in found["hits"]], found["more"]) == ([3], True)
    assert found["hits"][0]["data"] == RECORDS[2]


def test_a_search_is_restricted_to_a_time(cli: Cli, log: str) -> None:
    found = cli.json(
        "search", log, "level:error OR level:info", "--since", "2026-11-15T10:00:15Z", "--until", "2026-11-15T10:01Z"
    )
    assert [hit["seq"] for hit in found["hits"]] == [2]


def test_a_query_that_makes_no_sense_is_refused(cli: Cli, log: str, name: str) -> None:
    cli.fails(2, "search", log, "(level:error")
    cli.fails(2, "search", log, "nofield:1")
    for command in ("search", "aggregate"):
        assert "log 'no-such-log' not found" in cli.fails(3, command, "no-such-log", "a")
    cli.lines("log", "append", f"{name}-plain", "1")
    assert f"propose one with: strandline index infer {name}-plain" in cli.fails(2, "search", f"{name}-plain", "a")
    assert "primary timestamp" in cli.fails(6, "search", f"{name}-plain", "a", "--since", "1h")
    assert "is not a time" in cli.fails(2, "search", log, "level:error", "--since", "yesterday")


def test_only_words_that_were_looked_for_are_marked() -> None:
    words = words_of('level:error ms:>5 NOT gone (wrap* OR note:"in time")')
    assert words == ["error", "wrap", "in time"]
    text = marked('{"level":"Error","note":"wrapped, unwrapped"}', words)
    assert [text.plain[span.start : span.end] for span in text.spans] == ["Error", "wrap"]


def test_records_are_added_up_in_a_table(cli: Cli, log: str) -> None:
    header, *rows = cli.words("aggregate", log, "load", *DAY, "--group-by", "level", "--interval", "1h")
    assert header[:4] == ["start", "level", "ms.count", "ms.sum"]
    assert [[row[1], row[3], row[header.index("requests")]] for row in rows] == [
        ["error", "750", "2"],
        ["info", "10", "1"],
    ]
    document = cli.json("aggregate", log, *DAY, "-m", "requests")
    assert [bucket["groups"][0]["measures"]["requests"]["count"] for bucket in document["buckets"]] == [2, 1]


def test_records_are_added_up_as_bars_with_nothing_left_out(cli: Cli, log: str) -> None:
    title, *lines = cli.lines("aggregate", log, *DAY, "--interval", "1m", "--chart", "--value", "ms.max")
    assert title == "ms.max"
    assert [line.split()[1] for line in lines] == ["250", "0", "500"]
    assert [line.count("█") for line in lines] == [20, 0, 40]


def test_what_cannot_be_added_up_is_told(cli: Cli, log: str, name: str) -> None:
    assert "ms.avg" in cli.fails(2, "aggregate", log, *DAY, "--chart", "--value", "ms.none")
    cli.fails(2, "aggregate", log, *DAY, "--value", "ms.max")
    cli.fails(2, "aggregate", log, "no-such-rollup", *DAY)
    assert cli.lines("aggregate", log, "--since", "2020-01-01", "--until", "2020-01-02") == ["no records match"]
    cli.lines("log", "append", f"{name}-plain", "1")
    assert "has no rollups" in cli.fails(6, "aggregate", f"{name}-plain")


def test_the_smallest_value_can_still_be_seen() -> None:
    assert (bar_of(1, 1_000_000, 10), bar_of(0, 5, 10), bar_of(5, 5, 10)) == ("▏", "", "█" * 10)
