"""The list of backups, with the replica and the cold tier."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from support.live_server import wait_for
from support.server_process import ServerProcess, StartServer

from strandline.engine.backup import backup

KEYS = "root-secret,tenant-secret:admin:mine,reader-secret:read"


def start(start_server: StartServer, tmp_path: Path, **settings: object) -> ServerProcess:
    return start_server(keys=KEYS, data=tmp_path / "data", **settings)


def shown(process: ServerProcess) -> dict[str, Any]:
    found: dict[str, Any] = process.client("root-secret").call("GET", "/v0/backups")
    return found


def test_a_server_without_any_copy_says_so(start_server: StartServer, tmp_path: Path) -> None:
    found = shown(start(start_server, tmp_path))
    assert (found["location"], found["found"], found["error"]) == ("", None, "")
    assert (found["replica"], found["cold_tier"]) == (None, None)
    assert found["data_dir"] == str(tmp_path / "data")


def test_backups_at_the_location_are_listed(start_server: StartServer, tmp_path: Path) -> None:
    pool = tmp_path / "pool"
    process = start(start_server, tmp_path, backups=str(pool))
    client = process.client("root-secret")
    client.write("orders", [1, 2, 3])
    # No backup was taken yet, so there is no such directory.
    before = shown(process)
    assert before["found"] is None
    assert str(pool) in before["error"]
    report = backup(tmp_path / "data", str(pool))
    process.kill()
    process.start()
    found = shown(process)
    assert (found["location"], found["error"]) == (str(pool), "")
    (row,) = found["found"]["backups"]
    assert (row["name"], row["own"], row["bytes"], row["missing_files"]) == (report.name, True, report.bytes, 0)
    assert row["verified_at"] is not None
    assert [interval["own"] for interval in found["found"]["intervals"]] == [True]
    # What was found is used for a while.
    shutil.rmtree(pool)
    assert shown(process)["checked_at"] == found["checked_at"]


def test_only_administrators_of_all_logs_see_them(start_server: StartServer, tmp_path: Path) -> None:
    process = start(start_server, tmp_path)
    for key in ("tenant-secret", "reader-secret"):
        process.client(key).refused("GET", "/v0/backups", status=403)


def test_the_replica_and_the_cold_tier_are_shown(start_server: StartServer, tmp_path: Path) -> None:
    cold, replica = tmp_path / "cold", tmp_path / "replica"
    process = start(
        start_server,
        tmp_path,
        replica=str(replica),
        cold_url=str(cold),
        hot_segments=0,
        journal_bytes=20_000,
    )
    client = process.client("root-secret")
    for _ in range(5):
        client.write("orders", ["x" * 9000])
    wait_for(lambda: shown(process)["cold_tier"]["segments"] > 0)
    found = shown(process)
    assert (found["cold_tier"]["location"], found["cold_tier"]["error"]) == (str(cold), "")
    wait_for(lambda: shown(process)["replica"]["waiting_bytes"] == 0)
    shipped = shown(process)["replica"]
    assert (shipped["location"], shipped["role"], shipped["away"]) == (str(replica), "leader", False)
    assert shipped["term"] == 1
    assert shipped["chunk"] > 0
