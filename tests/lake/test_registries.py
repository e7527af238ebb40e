from __future__ import annotations

from pathlib import Path

import msgspec

from strandline.lake.location import Lake
from strandline.lake.registries import FOLDER, KeptRegistry, RegistryLayer, find, keep


def registry(log: str, epoch: int, text: bytes = b'{"schema":"x"}') -> KeptRegistry:
    return KeptRegistry(log, epoch, [RegistryLayer(epoch, 1, None)], msgspec.Raw(text))


def test_a_registry_is_found_by_the_name_of_its_log(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    assert find(lake, "a") is None
    odd = "ä/../b" * 80
    keep(lake, [registry("a", 1), registry(odd, 2, b'{"schema":"y"}')], now_ms=10)
    found = find(lake, odd)
    assert found is not None
    assert (found.log, found.epoch, bytes(found.registry)) == (odd, 2, b'{"schema":"y"}')
    assert find(lake, "b") is None


def test_only_what_has_changed_is_written_again(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    keep(lake, [registry("a", 1), registry("b", 2)], now_ms=10)
    before = set(lake.names(f"{FOLDER}/"))
    keep(lake, [registry("a", 1), registry("b", 2, b"{}")], now_ms=11)
    after = set(lake.names(f"{FOLDER}/"))
    assert len(before & after) == 1
    assert len(after) == 2
    changed = find(lake, "b")
    assert changed is not None
    assert bytes(changed.registry) == b"{}"


def test_of_several_logs_of_one_name_the_last_counts_and_a_crash_leaves_the_newer_one(tmp_path: Path) -> None:
    lake = Lake.at(tmp_path)
    keep(lake, [registry("a", 1)], now_ms=10)
    left = set(lake.names(f"{FOLDER}/"))
    data = {name: lake.read(name) for name in left}
    keep(lake, [registry("a", 1, b"{}")], now_ms=11)
    for name, content in data.items():
        lake.write(name, content or b"")  # as if it had not come to removing it
    found = find(lake, "a")
    assert found is not None
    assert bytes(found.registry) == b"{}"
    keep(lake, [registry("a", 3, b"[]")], now_ms=12)
    found = find(lake, "a")
    assert found is not None
    assert found.epoch == 3
    keep(lake, [], now_ms=13)
    assert find(lake, "a") is None
