"""Stands in for the pipeline: a process that is told what to do as the real one is, and tells of it in the same way.

    stand_in.py LAKE [what to do when it starts]

Every round covers everything and takes no time. ``fail``: says why and ends with 1; ``missing``: with 3; ``deaf``: does
not end when it is told to.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.lake.location import Lake


def now() -> int:
    return time.time_ns() // 1_000_000


def main() -> None:
    what = sys.argv[2] if len(sys.argv) > 2 else ""
    if what == "fail":
        print("strandline: the disk is full")
        sys.exit(1)
    if what == "missing":
        print("strandline: there is no Java")
        sys.exit(3)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if what == "deaf" else lambda *_: sys.exit(0))
    work(sys.argv[1], what)


def work(place: str, what: str) -> None:
    # Not before: one that fails is to fail at once.
    from strandline.lake.fence import claim
    from strandline.lake.location import Lake

    lake = Lake.at(place)
    with claim(lake, now):
        do_round(lake)
        for _ in sys.stdin:
            do_round(lake)
        if what == "deaf":
            time.sleep(3600)


def do_round(lake: Lake) -> None:
    from strandline.lake.status import PipelineStatus, RoundSummary, read_status, write_status

    before = read_status(lake) or PipelineStatus()
    moment = now()
    write_status(
        lake,
        PipelineStatus(
            state="idle",
            since=moment,
            pid=os.getpid(),
            rounds=[*before.rounds, RoundSummary(begin=moment, end=moment)],
            rounds_total=before.rounds_total + 1,
            records_total={"records": 7},
        ),
    )
    print("round", flush=True)


if __name__ == "__main__":
    main()
