from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING

import msgspec
import pytest

from strandline.lake.reporter import TaskFailed, describe
from strandline.pipeline.tasks import LocalWorkers, SparkWorkers, about_item, items_frame, job_description

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_every_item_is_worked_on_in_other_processes(spark: SparkSession) -> None:
    from support.task_items import Doubled, Number, double

    workers = SparkWorkers(spark)
    assert workers.parallel == 2
    waves = list(workers.waves(double, [Number(n) for n in range(11)], Number, Doubled))
    assert [len(wave) for wave in waves] == [8, 3]
    results = [result for wave in waves for result in wave]
    assert sorted(result.value for result in results) == [2 * n for n in range(11)]
    assert os.getpid() not in {result.process for result in results}
    assert isinstance(results[0], msgspec.Struct)
    jobs = spark._jsc.sc().statusStore().jobsList(None)
    descriptions = [jobs.apply(number).description() for number in range(jobs.size())]
    assert {text.get() for text in descriptions if text.isDefined()} >= {"double: 8 items", "double: 3 items"}


def test_an_error_says_what_the_task_was_about_and_the_cause(spark: SparkSession) -> None:
    from pyspark.errors import PySparkException
    from support.task_items import Doubled, Number, refuse

    with pytest.raises(PySparkException) as caught:
        list(SparkWorkers(spark).waves(refuse, [Number(7)], Number, Doubled))
    assert describe(caught.value) == "refuse failed on Number: OSError: [Errno 28] No space left on device: 'file-7'"


def test_what_an_item_is_about_is_said_in_a_line() -> None:
    piece = SimpleNamespace(log="a", first=1, last=9)
    assert about_item(SimpleNamespace(pieces=[piece])) == "log 'a' seqs 1 to 9"
    assert about_item(SimpleNamespace(piece=piece, lake=None)) == "log 'a' seqs 1 to 9"
    assert about_item(SimpleNamespace(path="1.parquet")) == "1.parquet"
    assert about_item(SimpleNamespace(paths=["1", "2", "3", "4", "5"])) == "1, 2, 3 and 2 more"
    works = [SimpleNamespace(pieces=[piece]), SimpleNamespace(paths=["pieces/1"])]
    assert about_item(SimpleNamespace(work=works)) == "log 'a' seqs 1 to 9, pieces/1"


def test_a_job_says_what_it_does_and_how_much() -> None:
    def write_records() -> None: ...

    pieces = [SimpleNamespace(rows=1_000_000), SimpleNamespace(rows=24)]
    items = [SimpleNamespace(pieces=pieces[:1]), SimpleNamespace(pieces=pieces[1:])]
    assert job_description(write_records, items) == "write records: 2 items, 1,000,024 records"
    items = [SimpleNamespace(work=[SimpleNamespace(pieces=pieces[1:]), SimpleNamespace(paths=["a", "b"])])]
    assert job_description(write_records, items) == "write records: 1 item, 24 records, 2 files"


def test_every_task_has_exactly_one_item(spark: SparkSession) -> None:
    from support.task_items import Number

    frame = items_frame(spark, [Number(n) for n in range(9)])
    counts = frame.selectExpr("spark_partition_id() as id").groupBy("id").count().collect()
    assert (frame.columns, frame.count()) == (["item"], 9)
    assert sorted((row["id"], row["count"]) for row in counts) == [(n, 1) for n in range(9)]


def test_local_workers_work_on_one_item_after_the_other_and_name_errors_as_spark_does() -> None:
    from support.task_items import Doubled, Number, double, refuse

    waves = list(LocalWorkers().waves(double, map(Number, range(40)), Number, Doubled))
    assert [[(done.value, done.process) for done in wave] for wave in waves] == [
        [(2 * n, os.getpid()) for n in numbers] for numbers in (range(32), range(32, 40))
    ]
    with pytest.raises(TaskFailed, match=r"^refuse failed on Number: OSError: .* No space left on device: 'file-7'$"):
        list(LocalWorkers().results(refuse, [Number(7)], Number, Doubled))
