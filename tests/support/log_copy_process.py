"""A driver that copies one log into another through Spark, until everything that was there at its start is copied.

``python copying.py URL SOURCE TARGET CHECKPOINT ROWS_PER_BATCH``
"""

from __future__ import annotations

import sys

from pyspark.errors import StreamingQueryException

from strandline.pipeline.spark_session import open_session


def main(url: str, source: str, target: str, checkpoint: str, rows: str) -> None:
    # With four attempts for each task, as on a cluster.
    spark = open_session("local[2,4]", conf={"spark.sql.shuffle.partitions": "1"})
    frame = spark.readStream.format("strandline").options(url=url, logs=source, maxOffsetsPerTrigger=rows).load()
    for _ in range(5):
        query = (
            frame.writeStream.format("strandline")
            .options(url=url, log=target, checkpointLocation=checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
            return
        except StreamingQueryException as error:
            # The worker that looked out for the query was killed: it is begun again where it was.
            print(error, flush=True)
    sys.exit("the query failed again and again")


if __name__ == "__main__":
    main(*sys.argv[1:])
