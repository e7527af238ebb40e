"""The process that seals and merges, so that building columns does not block the server process."""

from __future__ import annotations

import os

from strandline.engine.process import SpareDescriptors
from strandline.engine.segments.footer import SegmentInfo
from strandline.engine.segments.jobs import MergeJob, SealJob, run
from strandline.engine.worker_process import WorkerProcess, main

MODULE = "strandline.engine.segments.worker"


class SealingWorker(WorkerProcess[SegmentInfo | None]):
    """Runs ``jobs.run`` in a process."""

    def __init__(self, root: str | os.PathLike[str], spare: SpareDescriptors | None = None) -> None:
        super().__init__(MODULE, SegmentInfo | None, root, spare)


if __name__ == "__main__":
    main(SealJob | MergeJob, run)
