"""``--output`` of all commands."""

from __future__ import annotations

import csv
import io
import json

import pytest
from cli.test_help import COMMANDS
from support.command_line import Cli


def rows_of(cli: Cli, *arguments: object) -> list[list[str]]:
    result = cli(*arguments, "--output", "csv")
    assert result.exit_code == 0, result.output
    return list(csv.reader(io.StringIO(result.stdout)))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_with_json_has_the_option(name: str) -> None:
    options = {option for param in COMMANDS[name].params for option in param.opts}
    if "--json" in options:
        assert "--output" in options


def test_json_is_the_same_as_the_flag(cli: Cli, name: str) -> None:
    cli.lines("log", "append", name, '{"a":1}')
    for words in (("log", "tail", name), ("router", "ls"), ("consumer", "ls", name), ("sql", f'from "{name}"')):
        assert cli.lines(*words, "--output", "json") == cli.lines(*words, "--json")
    assert cli.json("log", "append", name, "1", "--output", "json")["appended"] == 1
    assert cli.lines("log", "tail", name, "--output", "table") == cli.lines("log", "tail", name)


def test_tables_and_objects_as_csv(cli: Cli, name: str) -> None:
    cli.lines("log", "append", name, input="\n".join(str(number) for number in range(1200)))
    header, row = rows_of(cli, "log", "ls", "--prefix", name)
    assert header == ["log", "type", "records", "size", "head", "last write", "content type"]
    assert row[:5] == [name, "log", "1200", "3690", "1200"]
    cli.lines("consumer", "seek", name, "c", "start", "--create")
    header, row = rows_of(cli, "consumer", "show", name, "c")
    assert dict(zip(header, row, strict=True))["lag"] == "1200"
    assert rows_of(cli, "consumer", "ls", name)[1][:5] == [name, "c", "0", "1200", "1200"]
    result = cli("log", "ls", "--limit", "1", "--output", "csv")
    assert "more logs exist" not in result.stdout
    assert "more logs exist" in result.stderr
    assert rows_of(cli, "sql", f'select count(*) as n from "{name}"') == [["n"], ["1200"]]
    assert cli.lines("sql", "select 1 as n", "--csv") == ["n", "1"]


def test_records_as_csv_are_as_they_were_written(cli: Cli, name: str) -> None:
    cli.lines("log", "create", name, "--max-records", "2")
    cli.lines("log", "append", name, '"gone"', '"1,000"', '{"a": "x,\\"y\\""}', "-k", "k,1", "--meta", '{"m":1}')
    result = cli("log", "tail", name, "--output", "csv")
    header, first, second = csv.reader(io.StringIO(result.stdout))
    assert header == ["seq", "time", "key", "node", "meta", "data"]
    assert (first[0], first[2], first[4], first[5]) == ("2", "k,1", '{"m":1}', '"1,000"')
    assert json.loads(second[5]) == {"a": 'x,"y"'}
    # A loss is not a record.
    assert "seq 1 removed by retention" in result.stderr


def test_formats_that_do_not_go_together_are_refused(cli: Cli, name: str) -> None:
    cli.lines("log", "append", name, "1")
    assert "cannot be combined with --json" in cli.fails(2, "log", "ls", "--json", "--output", "csv")
    assert "cannot be combined with --csv" in cli.fails(2, "sql", "select 1", "--csv", "--output", "json")
    assert "'xml'" in cli.fails(2, "log", "ls", "--output", "xml")
    assert "'csv'" in cli.fails(2, "log", "append", name, "1", "--output", "csv")
    assert len(cli.rows("log", "tail", name)) == 1
    assert "--chart cannot be combined" in cli.fails(2, "aggregate", name, "r", "--chart", "--output", "csv")
