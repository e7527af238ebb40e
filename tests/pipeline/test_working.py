from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from strandline.pipeline.working import parallelism, work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_every_item_is_worked_on_in_other_processes(spark: SparkSession) -> None:
    from working_items import Doubled, Number, double

    assert parallelism(spark) == 2
    waves = list(work(spark, double, [Number(n) for n in range(11)], Number, Doubled))
    assert [len(wave) for wave in waves] == [8, 3]
    results = [result for wave in waves for result in wave]
    assert sorted(result.value for result in results) == [2 * n for n in range(11)]
    assert os.getpid() not in {result.process for result in results}
    assert isinstance(results[0], msgspec.Struct)
