"""`strandline pipeline init`, `tables` and `refresh`, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command_line import Cli

from strandline.lake.declared import DeclaredFiles
from strandline.lake.location import Lake
from strandline.lake.status import DeclaredStatus, DeclaredTable, PipelineStatus, write_status

TABLES = [
    DeclaredTable(name="clean", kind="streaming_table", state="running", mode="append", inputs=["orders"], lag=3),
    DeclaredTable(
        name="revenue", kind="materialized_view", state="failed", mode="state", inputs=["clean"], erasures=2,
        error="[CAST_INVALID_INPUT] 'x' is not a number", failures=4,
    ),
]  # fmt: skip


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    declared = DeclaredStatus(project="shop", directory="/srv/shop", tables=TABLES)
    write_status(Lake.at(str(tmp_path / "lake")), PipelineStatus(declared=declared))
    return tmp_path / "lake"


def test_tables_are_shown_with_their_errors(lake: Path) -> None:
    cli = Cli("")
    shown = "\n".join(cli.lines("pipeline", "tables", "--lake", lake))
    assert "project shop in /srv/shop" in shown
    assert "revenue: [CAST_INVALID_INPUT] 'x' is not a number (4 failures)" in shown
    assert "revenue: 2 erasures since it was computed" in shown
    (document,) = cli.lines("pipeline", "tables", "--lake", lake, "--json")
    assert [each["name"] for each in json.loads(document)["tables"]] == ["clean", "revenue"]


def test_without_a_project_there_is_nothing_to_show(tmp_path: Path) -> None:
    result = Cli("")("pipeline", "tables", "--lake", tmp_path)
    assert result.exit_code == 1
    assert "strandline pipeline run --project DIR" in result.stderr


def test_a_refresh_is_requested_only_for_a_declared_table(lake: Path) -> None:
    cli = Cli("")
    result = cli("pipeline", "refresh", "--full", "revenu", "--lake", lake)
    assert (result.exit_code, "did you mean 'revenue'?" in result.stderr) == (1, True)
    assert cli("pipeline", "refresh", "revenue", "--lake", lake).exit_code == 2
    assert cli("pipeline", "refresh", "--full", "revenue", "--lake", lake).exit_code == 0
    assert DeclaredFiles.of(lake).requested() == ["revenue"]


def test_a_project_is_made_once(tmp_path: Path) -> None:
    cli = Cli("")
    made = cli.lines("pipeline", "init", tmp_path / "shop")
    assert sorted(Path(each).name for each in made) == [
        "example.sql", "pipeline.toml", "spark-pipeline.yml", "strandline_logs.py",
    ]  # fmt: skip
    again = cli("pipeline", "init", tmp_path / "shop")
    assert again.exit_code == 2
    assert "has files of a project already" in again.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--project", "missing"], "missing is not a directory"),
        (["--project", ".", "--remote", "sc://x"], "cannot run through Spark Connect"),
        (["--project", ".", "--lake", "s3://bucket/lake"], "need a lake in a directory"),
    ],
)
def test_a_project_that_cannot_run_is_refused(tmp_path: Path, options: list[str], message: str) -> None:
    result = Cli("")("pipeline", "run", "--data", tmp_path, *options)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())
