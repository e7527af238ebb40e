"""What can happen to a task, for tests: workers find this module as the test does."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from strandline.lake import record_files
from strandline.lake.record_files import RecordsDone, RecordsItem


def killed_once(item: RecordsItem) -> RecordsDone:
    """The first process that has written its file is killed before it can say so."""
    done = record_files.write_records(item)
    try:
        (Path(item.lake.url) / "incident").touch(exist_ok=False)
    except FileExistsError:
        return done
    os.kill(os.getpid(), signal.SIGKILL)
    return done
