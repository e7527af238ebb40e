"""The guide to the pipeline, followed from top to bottom: on a server of its own, and on a real Spark."""

from __future__ import annotations

import re
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


def test_every_table_of_the_guide_names_options_that_exist() -> None:
    from strandline.pipeline.source import options

    every = (options._BATCH, options._STREAMING, options._WRITING, options._STREAM_WRITING)
    known = {name for names in every for name in names} - {"checkpointLocation"}
    section = GUIDE.read_text().partition("\n## Options\n")[2].partition("\n## ")[0]
    named = {
        name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    assert named == known
