"""Kills the pipeline at random moments while it keeps typed and declared tables, and compares all with the truth.

PYTHONPATH=tests python -m support.declared_kills KILLS [SEED]
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from support.declared_pipeline import DeclaredPipeline, Shop, write_project
from support.server_process import ServerProcess

#: Commits of all tables together before a kill. A batch of every query makes seven.
MIN_COMMITS, MAX_COMMITS = 2, 12


def kill_and_compare(pipeline: DeclaredPipeline, shop: Shop, random: Random, kills: int) -> None:
    """Raises AssertionError if a table or a log differs from what it must have."""
    shop.order(random, 40)
    for _ in range(kills):
        pipeline.start("--continuous")
        pipeline.wait_until(pipeline.files.directory.is_dir)
        end = pipeline.versions() + random.randint(MIN_COMMITS, MAX_COMMITS)
        while pipeline.versions() < end:
            shop.order(random, random.randrange(1, 20))
            shop.visit(f"c{random.randrange(9)}")
            pipeline.wait_for_commit()
        shop.order(random, 5)
        pipeline.kill()
    pipeline.start("--once")
    assert pipeline.wait() == 0, pipeline.log()
    pipeline.check(shop)
    pipeline.check_typed(shop)


def main(kills: int, seed: int) -> None:
    with TemporaryDirectory(prefix="declared-kills-") as name:
        place = Path(name)
        server = ServerProcess(place / "data").start()
        shop = Shop(server.url)
        pipeline = DeclaredPipeline(write_project(place / "shop"), server.url, place / "lake")
        try:
            kill_and_compare(pipeline, shop, Random(seed), kills)
        finally:
            pipeline.kill()
            server.end()
        print(f"{kills} kills, {len(shop.orders)} orders: every table and log is exact")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
