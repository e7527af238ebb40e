from __future__ import annotations

import json
import os
from pathlib import Path
from time import time
from typing import Any

import msgspec
import pytest
from support.arrow_client import ArrowClient, table

from strandline.engine import Batch
from strandline.protocols.arrow import staged
from strandline.protocols.arrow.decoder import Rules
from strandline.protocols.arrow.staged import SELECTION, StagedRows, StagedRun, StagedSelection
from strandline.service.problems import Refusal

RULES = Rules(
    is_json=True, max_bytes=1000, max_record_bytes=1000, max_meta_bytes=100, max_meta_keys=5, max_key_bytes=100,
    max_node_bytes=100,
)  # fmt: skip


def stage(arrow: ArrowClient, name: str, rows: Any, **query: Any) -> str:
    id: str = arrow.call("POST", f"staged/{name}", status=201, **arrow.sending(rows, **query))["staged"]
    return id


def selected(parts: list[str], *rows: list[int], progress: Any = None, before: Any = None) -> dict[str, Any]:
    options = ArrowClient.sending(json.dumps({"parts": parts, "rows": rows}).encode(), progress, before)
    options["headers"]["content-type"] = SELECTION
    return options


def test_staged_rows_are_appended_in_the_order_of_the_selection_with_the_progress(
    arrow: ArrowClient, name: str
) -> None:
    one = stage(arrow, name, table(0, 1, 2, key=["a", None, "c"]), create="true")
    two = stage(arrow, name, table(10, 11, meta=[b'{"m":1}', None]), create="true")
    arrow.refused("GET", f"records/{name}", 404, "log_not_found")
    options = selected([one, two], [1, 1, 1], [0, 0, 2], [1, 0, 1], progress={"batch": 1})
    options["params"] = {"writer": "w", "create": "true"}
    assert arrow.call("POST", f"records/{name}", status=201, **options)["count"] == 4
    assert arrow.values(name) == [11, 0, 1, 10]
    assert arrow.read(name).select(["key", "meta"]).to_pylist() == [
        {"key": None, "meta": None}, {"key": "a", "meta": None}, {"key": None, "meta": None},
        {"key": None, "meta": b'{"m":1}'},
    ]  # fmt: skip
    arrow.refused("POST", f"records/{name}", 409, "progress_conflict", **options)
    removed = {"params": {"ids": f"{one},{two}"}}
    assert arrow.call("DELETE", f"staged/{name}", **removed) == {"removed": 2}
    assert arrow.call("DELETE", f"staged/{name}", **removed) == {"removed": 0}
    options["params"]["writer"] = "other"
    arrow.refused("POST", f"records/{name}", 404, "staged_not_found", **options)


def test_what_cannot_be_staged_or_selected_is_refused(arrow: ArrowClient, name: str) -> None:
    arrow.refused("POST", f"staged/{name}", 404, "log_not_found", **arrow.sending(table(1)))
    arrow.append(name, table(1), create="true", status=201)
    arrow.refused("POST", f"staged/{name}", 400, "not_json", **arrow.sending(table(b"{")))
    arrow.refused("POST", f"staged/{name}", 400, "invalid_request", **arrow.sending(table()))
    arrow.refused("POST", f"staged/{name}", 415, "unsupported_media_type", json={"data": 1})
    id = stage(arrow, name, table(1, 2))
    arrow.append(f"{name}.other", table(1), create="true", status=201)
    arrow.refused("POST", f"records/{name}.other", 404, "staged_not_found", **selected([id], [0, 0, 1]))
    arrow.refused("DELETE", f"staged/{name}.other", 404, "staged_not_found", params={"ids": id})
    for rows in ([0, 0, 3], [0, -1, 1], [0, 0, 0], [1, 0, 1], [0, 2, 1], ["a", 0, 1]):
        arrow.refused("POST", f"records/{name}", 400, "invalid_request", **selected([id], rows))  # type: ignore[arg-type]
    assert arrow.values(name) == [1]


def test_files_are_bounded_expire_and_are_not_trusted(tmp_path: Path) -> None:
    body = len(staged._encoded(Batch([b"1"])))
    rows = StagedRows(tmp_path / "staged", max_bytes=2 * body)
    first, second = rows.add("log", Batch([b"1"]), RULES), rows.add("log", Batch([b"2"]), RULES)
    with pytest.raises(Refusal, match="staged"):
        rows.add("log", Batch([b"3"]), RULES)
    rows.remove("log", [first])
    third = rows.add("log", Batch([b"3"]), RULES)

    def read(id: str, rules: Rules = RULES) -> Any:
        return rows.select("log", StagedSelection([id], [StagedRun(0, 0, 1)]), rules)

    assert [*read(third).data, *read(second).data] == [b"3", b"2"]
    with pytest.raises(Refusal, match="not found"):
        read(second, msgspec.structs.replace(RULES, is_json=False))
    (tmp_path / "staged" / second).write_bytes(b"torn")
    with pytest.raises(Refusal, match="not found"):
        read(second)
    for id in ("../engine", "x", "0" * 66):
        with pytest.raises(Refusal, match="not found"):
            read(id)
    old = time() - staged.MAX_AGE_S - 1
    os.utime(tmp_path / "staged" / third, (old, old))
    # After a restart, what is there is counted, and what is old is removed.
    again = StagedRows(tmp_path / "staged", max_bytes=2 * body)
    again.add("log", Batch([b"4"]), RULES)
    assert not (tmp_path / "staged" / third).exists()


def test_an_append_takes_no_more_than_fits_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = StagedRows(tmp_path / "staged")
    id = rows.add("log", Batch([b"12345678"] * 3), RULES)
    monkeypatch.setattr(staged, "MAX_APPEND_BYTES", 20)
    assert len(rows.select("log", StagedSelection([id], [StagedRun(0, 0, 2)]), RULES) or ()) == 2
    with pytest.raises(Refusal, match="the limit is 20"):
        rows.select("log", StagedSelection([id], [StagedRun(0, 0, 3)]), RULES)
