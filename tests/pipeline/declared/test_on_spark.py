"""Declared tables over a real server, on real Spark with Delta: what they contain, and after kills."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from support.declared_kills import kill_and_compare
from support.declared_pipeline import DeclaredPipeline, Shop, write_project
from support.server_process import StartServer

#: How often the pipeline is killed. `support.declared_kills` does it more often.
KILLS = 1
SEED = 18


@pytest.mark.xdist_group("spark")
def test_declared_tables_are_exact_whatever_is_killed(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server()
    shop = Shop(server.url)
    pipeline = DeclaredPipeline(write_project(tmp_path / "shop"), server.url, tmp_path / "lake")
    try:
        kill_and_compare(pipeline, shop, Random(SEED), KILLS)
    finally:
        pipeline.kill()
    status = pipeline.status()
    assert status is not None
    modes = {each.name: (each.mode, each.inputs) for each in status.tables}
    assert modes == {
        "clean": ("append", ["orders"]),
        "revenue": ("state", ["clean"]),
        "best": ("refresh", ["revenue"]),
        "numbers": ("append", ["orders"]),
        "seen": ("append", ["orders", "visits"]),
        "customers": ("cdc", ["orders"]),
        "large": ("sink", ["clean"]),
    }
