from __future__ import annotations

from pathlib import Path

import pytest
from support.command_line import Cli
from support.tables_client import POLLS

from strandline.server.declarations import load
from strandline.tables.types import python_types, typescript_types

#: No server is asked.
cli = Cli("http://127.0.0.1:9")


def test_types_are_printed_or_written_to_a_file(tmp_path: Path) -> None:
    tables = load(str(POLLS)).tables
    assert cli("types", "--ts", "--declare", POLLS).stdout == typescript_types(tables)
    path = tmp_path / "types.py"
    result = cli("types", "--py", "--declare", POLLS, "-o", path)
    assert (result.exit_code, result.stdout) == (0, "")
    assert path.read_text() == python_types(tables)


@pytest.mark.parametrize("languages", [[], ["--ts", "--py"]])
def test_one_language_is_chosen(languages: list[str]) -> None:
    result = cli("types", *languages, "--declare", POLLS)
    assert result.exit_code == 2
    assert "either --ts or --py" in result.output


def test_declarations_that_cannot_be_loaded(tmp_path: Path) -> None:
    result = cli("types", "--ts", "--declare", tmp_path / "missing.py", "-o", tmp_path / "types.ts")
    assert result.exit_code == 2
    assert "not found" in result.output
    assert not (tmp_path / "types.ts").exists()


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "types.ts"
    message = cli.fails(1, "types", "--ts", "--declare", POLLS, "-o", path)
    assert message == f"strandline: cannot write {path}: No such file or directory"


def test_the_server_does_not_answer() -> None:
    assert cli("types", "--ts").exit_code == 4
