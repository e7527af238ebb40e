"""``log find``: the records whose content matches a filter."""

from __future__ import annotations

import csv
import io

import pytest
from support.command_line import Cli
from support.topics_client import eventually

from strandline.cli import log_find


@pytest.fixture
def payments(cli: Cli, name: str) -> str:
    cli.lines(
        "log", "append", name, *(f'{{"id":{n},"status":"{"failed" if n % 3 == 0 else "paid"}"}}' for n in range(9))
    )
    return name


def test_matches_are_printed_newest_first(cli: Cli, payments: str) -> None:
    found = cli.rows("log", "find", payments, ".status = failed")
    assert [record["data"]["id"] for record in found] == [6, 3, 0]
    assert cli.words("log", "find", payments, ".id = 4")[0][3:] == ['{"id":4,"status":"paid"}']
    assert cli.lines("log", "find", payments, ".status = refunded") == []


def test_a_limit_says_that_there_are_more(cli: Cli, payments: str) -> None:
    result = cli("log", "find", payments, "paid", "-n", 5)
    assert (len(result.stdout.splitlines()), result.exit_code) == (5, 0)
    assert "--limit 10" in result.stderr
    assert cli("log", "find", payments, "paid", "-n", 6).stderr == ""


def test_matches_of_several_requests_are_printed(cli: Cli, payments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_find, "PAGE_RECORDS", 2)
    assert [record["seq"] for record in cli.rows("log", "find", payments, "paid")] == [9, 8, 6, 5, 3, 2]


def test_time_and_key_narrow_the_search(cli: Cli, payments: str) -> None:
    cli.lines("log", "append", payments, '{"id":9,"status":"failed"}', "-k", "ann")
    cli.lines("log", "append", payments, '{"id":10,"status":"failed"}', "-k", "anton")
    find = ("log", "find", payments, ".status = failed")
    assert [record["seq"] for record in cli.rows(*find, "-k", "ann")] == [10]
    assert [record["seq"] for record in cli.rows(*find, "--key-prefix", "an")] == [11, 10]
    assert len(cli.rows(*find, "--since", "1h")) == 5
    assert cli.rows(*find, "--until", "1h") == []
    assert "cannot be combined" in cli.fails(2, *find, "-k", "ann", "--key-prefix", "an")


def test_a_log_of_text_is_searched_as_well_and_printed_as_csv(cli: Cli, name: str) -> None:
    cli.lines("log", "create", name, "--content-type", "text/plain")
    cli.lines("log", "append", name, input="one\ntwo\n")
    assert eventually(lambda: cli.lines("log", "find", name, "two"))
    header, row = csv.reader(io.StringIO(cli("log", "find", name, "two", "--output", "csv").stdout))
    assert header == ["seq", "time", "key", "node", "meta", "data"]
    assert row[-1].strip() == "two"


def test_a_filter_that_cannot_be_read_is_explained(cli: Cli, payments: str) -> None:
    assert "expected a value after =" in cli.fails(2, "log", "find", payments, ".status = (")
    assert "not found" in cli.fails(3, "log", "find", f"{payments}-none", "x")
