"""When commands that can do without Spark use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import typer

from strandline.cli.spark import SparkOptions
from strandline.pipeline.tasks import LocalWorkers, SparkWorkers


@pytest.mark.parametrize(
    ("options", "is_much", "missing", "on_spark"),
    [
        (SparkOptions(None, None, None, {}), False, [], False),
        (SparkOptions(None, None, None, {}), True, [], True),
        (SparkOptions(None, None, None, {}), True, ["no Java"], False),
        (SparkOptions(False, None, None, {}), True, [], False),
        (SparkOptions(True, None, None, {}), False, [], True),
        (SparkOptions(None, "local[2]", None, {}), False, [], True),
        (SparkOptions(None, None, "sc://host:1", {}), False, ["no Java"], True),
        (SparkOptions(None, None, None, {"spark.a": "b"}), False, [], True),
    ],
)
def test_spark_is_used_on_request_and_for_much_data_if_it_is_installed(
    options: SparkOptions, is_much: bool, missing: list[str], on_spark: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def session(*_: Any) -> Iterator[Any]:
        yield None

    monkeypatch.setattr("strandline.cli.spark.session", session)
    monkeypatch.setattr("strandline.pipeline.spark_session.what_is_missing", lambda: missing)
    options.check()
    with options.workers("test", is_much) as workers:
        assert isinstance(workers, SparkWorkers if on_spark else LocalWorkers)


def test_options_of_spark_without_spark_are_refused() -> None:
    with pytest.raises(typer.BadParameter, match="--no-spark cannot be combined"):
        SparkOptions(False, "local", None, {}).check()
    assert SparkOptions(None, "spark://h:1", None, {}).is_cluster
    assert SparkOptions(None, None, "sc://h:1", {}).is_cluster
    assert not SparkOptions(True, "local[2]", None, {}).is_cluster
