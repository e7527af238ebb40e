"""The server stops in order, and its directory is looked through."""

from __future__ import annotations

from strandline.cli.demo.server import Broken
from strandline.cli.demo.stage import Stage
from strandline.engine.disk import LocalDisk
from strandline.engine.verify.directory_check import verify


def stop_and_verify(stage: Stage) -> None:
    with stage.teller.chapter("Stopped, and verified") as tell:
        stage.server.stop()
        report = verify(LocalDisk(stage.server.data))
        if report.problems:
            raise Broken(f"the directory has problems: {report.problems[0]}")
        tell.say(
            "The server was told to stop, and did so in order. Then every file of its directory was read, as "
            "`strandline verify` does it."
        )
        tell.proved("Every checksum holds, and every promise; also after the kill.")
