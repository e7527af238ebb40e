"""A process that makes one round on Spark, and says so whenever something is committed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from strandline.history.directory import DirectoryHistory
from strandline.lake.location import Lake
from strandline.lake.reporter import Silent
from strandline.pipeline import records
from strandline.pipeline.run import run_round
from strandline.pipeline.spark_session import open_session


class Telling(Silent):
    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Telling]:
        self._stage = name
        print(f"begin {name}", flush=True)
        yield self

    def advance(self, records: int, bytes: int = 0) -> None:
        print(f"committed {self._stage}", flush=True)


def main(data: str, lake: str, item_rows: str) -> None:
    records.MIN_ITEM_ROWS = records.MAX_ITEM_ROWS = int(item_rows)
    spark = open_session("local[2]")
    history = DirectoryHistory(data)
    run_round(spark, history, Lake.at(lake), Telling())
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
