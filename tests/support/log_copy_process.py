"""A driver that copies one log into two others through Spark, until everything that was there at its start is copied:
into one with the origin of the rows and in their order, into the other without it, in any order and number of tasks.

``python log_copy_process.py MASTER URL SOURCE TARGET MIXED CHECKPOINTS ROWS_PER_BATCH``
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException

from strandline.pipeline.spark_session import open_session


def main(master: str, url: str, source: str, target: str, mixed: str, checkpoints: str, rows: str) -> None:
    spark = open_session(master, conf={"spark.sql.shuffle.partitions": "1", "spark.cores.max": "2"})
    frame = spark.readStream.format("strandline").options(url=url, logs=source, maxOffsetsPerTrigger=rows).load()
    shuffled = frame.select("key", "data").repartition(random.randint(1, 4)).mapInArrow(in_any_order, frame_schema)
    for _ in range(8):
        queries = [
            each.writeStream.format("strandline")
            .options(url=url, log=log, batchRows=7, checkpointLocation=str(Path(checkpoints) / log))
            .trigger(availableNow=True)
            .start()
            for each, log in ((frame, target), (shuffled, mixed))
        ]
        try:
            for query in queries:
                query.awaitTermination()
            return
        except StreamingQueryException as error:
            # The worker that looked out for the query was killed: it is begun again where it was.
            print(error, flush=True)
            for query in queries:
                query.stop()
    sys.exit("the query failed again and again")


frame_schema = "key string, data string"


def in_any_order(batches: Iterator[Any]) -> Iterator[Any]:
    import numpy

    for batch in batches:
        yield batch.take(numpy.random.default_rng().permutation(batch.num_rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
