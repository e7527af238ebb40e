from __future__ import annotations

import pytest
from support.command_line import Cli

from strandline.cli import bench

LITTLE = ("--records", "2500", "--batch", "100", "--connections", "3", "--size", "50")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SINGLE_WRITES", 10)
    monkeypatch.setattr(bench, "DELIVERED", 5)


def test_a_server_is_measured_and_the_log_deleted(cli: Cli, name: str) -> None:
    found = cli.json("bench", "--log", name, *LITTLE)
    measured = {one["what"]: one for one in found["measurements"]}
    assert list(measured) == ["append in batches", "append one by one", "read", "deliver"]
    assert [one["records"] for one in measured.values()] == [2500, 10, 2510, 5]
    for one in measured.values():
        assert one["rate"] == pytest.approx(one["records"] / one["seconds"])
        assert one["bytes_per_second"] == pytest.approx(one["rate"] * 50)
        assert 0 < one["p50_ms"] <= one["p99_ms"]
    assert "not found" in cli.fails(3, "log", "show", name)


def test_the_log_can_be_kept_and_has_the_records(cli: Cli, name: str) -> None:
    lines = cli.lines("bench", "--log", name, "--keep", "--durability", "fsync", *LITTLE)
    assert lines[0].split() == ["measurement", "records", "records/s", "bytes/s", "p50", "p99"]
    assert lines[-2] == "records of 50 bytes, 100 per request, 3 connections, durability fsync"
    assert lines[-1] == f"kept log {name}"
    shown = cli.json("log", "show", name)["state"]
    assert shown["count"] >= 2515
    assert shown["config"]["durability"] == "fsync"
    (record,) = cli.rows("log", "tail", name, "-n", "1")
    assert len(record["data"]) == 48
    assert "already exists" in cli.fails(6, "bench", "--log", name)
    assert cli.json("log", "show", name)["state"]["count"] == shown["count"]


def test_too_much_is_refused(cli: Cli) -> None:
    message = cli.fails(2, "bench", "--records", "100000000", "--size", "1000000")
    assert "are more than" in message
    assert "use --batch 8" in cli.fails(2, "bench", "--size", "1000000")
