"""The guide to the pipeline, followed from top to bottom: on a server of its own, and on a real Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from support.pipeline_guide import GUIDE, NEEDED, PipelineFollower, settled
from support.prerequisites import need
from support.server_process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_following_the_guide_gives_what_it_shows(spark: SparkSession, tmp_path: Path) -> None:
    need(NEEDED)
    server = ServerProcess(tmp_path / "data").start()
    follower = PipelineFollower(server.port, tmp_path)
    try:
        for block, said in follower.follow(GUIDE.read_text()):
            assert settled(said) == settled(block.text), "write the answers again with: make docs-answers"
    finally:
        follower.close()
        server.end()
