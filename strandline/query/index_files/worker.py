"""The process that writes index files, so that indexing does not delay requests. Sealing has a process of its own: when
writers wait for it, it must not wait for an index."""

from __future__ import annotations

import os

from strandline.engine.process import SpareDescriptors
from strandline.engine.worker_process import WorkerProcess, main
from strandline.query.index_files.jobs import IndexJob, run
from strandline.query.index_files.table import IndexEntry

MODULE = "strandline.query.index_files.worker"
#: Requests and sealing have priority.
NICENESS = 10


class IndexWorker(WorkerProcess[IndexEntry]):
    """Runs ``jobs.run`` in a process."""

    def __init__(self, root: str | os.PathLike[str], spare: SpareDescriptors | None = None) -> None:
        super().__init__(MODULE, IndexEntry, root, spare)


if __name__ == "__main__":
    main(IndexJob, run, NICENESS)
