from __future__ import annotations

from pathlib import Path

import pytest

from strandline.pipeline.declared.project import BadProject, load_project
from strandline.pipeline.declared.template import project_files


def written(directory: Path, settings: str = "", **files: str) -> Path:
    (directory / "tables").mkdir(parents=True)
    (directory / "pipeline.toml").write_text(settings)
    for name, text in files.items():
        (directory / "tables" / name.replace("_dot_", ".")).write_text(text)
    return directory


def test_a_project_has_defaults_and_its_files_in_order(tmp_path: Path) -> None:
    project = load_project(written(tmp_path / "shop", b_dot_sql="", a_dot_py=""))
    assert project.name == "shop"
    assert [path.name for path in project.files()] == ["a.py", "b.sql"]
    before = project.fingerprint()
    (tmp_path / "shop" / "tables" / "b.sql").write_text("-- changed")
    assert project.fingerprint() != before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("trigger_second = 1", r"unknown member 'trigger_second'; did you mean 'trigger_seconds'\?"),
        ("trigger_seconds = -1", "trigger_seconds must be at least 0, got -1"),
        ("rows_per_batch = 0", "rows_per_batch must be at least 1"),
        ("name = ", "invalid TOML"),
        ('libraries = ["a/*/b.sql"]', r"invalid pattern 'a/\*/b.sql' in libraries"),
    ],
)
def test_settings_that_are_not_valid_are_refused(tmp_path: Path, settings: str, message: str) -> None:
    with pytest.raises(BadProject, match=message):
        load_project(written(tmp_path / "shop", settings))


def test_a_directory_without_settings_is_not_a_project(tmp_path: Path) -> None:
    with pytest.raises(BadProject, match="strandline pipeline init"):
        load_project(tmp_path)


def test_only_declarations_may_be_among_the_libraries(tmp_path: Path) -> None:
    project = load_project(written(tmp_path / "shop", notes_dot_md="hello"))
    with pytest.raises(BadProject, match=r"notes.md: expected a file that ends in .sql or .py"):
        project.files()


@pytest.mark.parametrize("logs", [{}, {"orders": True, "shop/visits": False}])
def test_a_new_project_is_valid(tmp_path: Path, logs: dict[str, bool]) -> None:
    for name, text in project_files(tmp_path, {"url": "http://127.0.0.1:4000"}, logs).items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        if path.suffix == ".py":
            compile(text, name, "exec")
    project = load_project(tmp_path)
    assert [path.name for path in project.files()] == ["example.sql"]
    assert ("STREAM orders" in (tmp_path / "tables" / "example.sql").read_text()) is True
