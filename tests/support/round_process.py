"""A process that makes one round, without Spark, as soon as there is a line on standard input. It says whether the
round came to its end."""

from __future__ import annotations

import json
import sys

import pytest

from strandline.history.directory import DirectoryHistory
from strandline.lake.fence import LakeInUse
from strandline.lake.location import Lake
from strandline.lake.reporter import Silent
from strandline.pipeline import records
from strandline.pipeline.run import run_round
from support.local_tasks import work_here


def main(data: str, lake: str, options: str) -> None:
    work_here(pytest.MonkeyPatch(), wave=1)
    # Several commits of the table records.
    records.MIN_ITEM_ROWS = 4
    history = DirectoryHistory(data)
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        run_round(None, history, Lake.at(lake, **json.loads(options)), Silent())  # type: ignore[arg-type]
    except LakeInUse as error:
        print(error, file=sys.stderr)
        print("in use", flush=True)
    else:
        print("done", flush=True)
    finally:
        history.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
