from __future__ import annotations

from pathlib import Path

import pytest

from strandline.lake import catalog
from strandline.lake.catalog import Catalog, make_catalog, read_catalog, statement, write_catalog
from strandline.lake.location import Lake


def names(*wanted: str, typed: tuple[str, ...] = ()) -> dict[str, str]:
    """The SQL names of logs with and without a typed table."""
    made = make_catalog(
        ["records"], (("log", name, f"tables/{name}") for name in typed), ((name, True) for name in wanted)
    )
    return {entry.of: entry.name for entry in made.entries if entry.kind != "lake"}


def test_every_log_has_a_name_of_its_own() -> None:
    found = names("a-b", "a_b", "A_b", "a/b", "records", "ä", "x" * 200, "orders", typed=("orders-1",))
    assert found["a_b"] == "a_b" or found["A_b"] == "A_b"
    assert found["orders"] == "orders"
    assert found["orders-1"] == "orders_1"
    assert found["records"].startswith("records_")
    assert len({name.lower() for name in found.values()}) == len(found)
    assert all(catalog._PLAIN.fullmatch(name[:100]) for name in found.values())


def test_statements_quote_what_comes_from_names(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path / "it's")
    made = make_catalog(["records"], [("table", "vote", "tables/vote")], [("a'b\\c\nd", True), ("text", False)])
    table, view, plain = (entry for entry in made.entries if entry.kind != "lake")
    place = str(tmp_path).replace("'", "\\'")
    assert (
        statement(lake, table) == f"CREATE TABLE IF NOT EXISTS `vote` USING delta LOCATION '{place}/it\\'s/tables/vote'"
    )
    view, plain = (view, plain) if plain.name == "text" else (plain, view)
    assert statement(lake, view, "TEMPORARY VIEW") == (
        "CREATE OR REPLACE TEMPORARY VIEW `a_b_c_d` AS SELECT log, epoch, seq, ts, key, node, meta, data, bytes, "
        "try_parse_json(data) AS value FROM records WHERE log = 'a\\'b\\\\c\nd'"
    )
    assert "value" not in statement(lake, plain)
    write_catalog(lake, made, Catalog())
    comment = (tmp_path / "it's" / catalog.VIEWS).read_text().splitlines()[0]
    assert (
        comment == '-- The log "a\'b\\\\c\\nd", which has no schema.'
        or comment == '-- The log "text", which has no schema.'
    )


def test_only_what_has_changed_is_written(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    assert read_catalog(lake) == Catalog()
    first = make_catalog(["records"], [("log", "a", "tables/a"), ("log", "b", "tables/b")], [("c", True)])
    write_catalog(lake, first, Catalog())
    assert read_catalog(lake) == first
    assert sorted(path.name for path in (tmp_path / "catalog").iterdir()) == [
        "a.sql", "b.sql", "catalog.json", "records.sql", "views"
    ]  # fmt: skip
    for name in ("catalog/a.sql", catalog.VIEWS):
        (tmp_path / name).write_text("untouched")
    second = make_catalog(["records"], [("log", "a", "tables/a"), ("log", "d", "tables/d")], [("c", True)])
    write_catalog(lake, second, read_catalog(lake))
    assert sorted(path.name for path in (tmp_path / "catalog").glob("*.sql")) == ["a.sql", "d.sql", "records.sql"]
    assert (tmp_path / "catalog/a.sql").read_text() == (tmp_path / catalog.VIEWS).read_text() == "untouched"
    lake.write(catalog.DATA, b"?")
    assert read_catalog(lake) == Catalog()


def test_too_many_logs_have_no_views_and_the_file_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "MAX_VIEWS", 2)
    made = make_catalog([], [], [(name, True) for name in "dcba"])
    assert [entry.of for entry in made.entries] == ["a", "b"]
    write_catalog(Lake.at(tmp_path), made, Catalog())
    assert "-- 2 more logs have no view.\n" in (tmp_path / catalog.VIEWS).read_text()
