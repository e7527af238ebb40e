"""The durability of a lease log follows from that of the jobs and from whether leases are durable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.delivery.queues.jobs import QueueSettings
from strandline.delivery.queues.lease_log import lease_log_name
from strandline.delivery.queues.queue import Queues
from strandline.engine import Config, Engine, ManualClock, Options


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    options = Options(replica=str(tmp_path / "replica"))
    with Engine.open(tmp_path / "data", options, background=False) as engine:
        yield engine


def durability_of(engine: Engine) -> str:
    return engine.log(lease_log_name("jobs")).config.durability


def test_durable_leases_of_a_replicated_queue_are_replicated(engine: Engine) -> None:
    jobs = engine.create("jobs", Config(durability="fsync")).wait()
    queues = Queues(engine, ManualClock().now, lambda name: None)
    durable = QueueSettings(leases_durable=True)
    queues.open(jobs, QueueSettings())
    assert durability_of(engine) == "memory"
    queues.open(jobs, durable)
    assert durability_of(engine) == "fsync"
    jobs.configure(Config(durability="replicated")).wait()
    queues.open(jobs, durable)
    assert durability_of(engine) == "replicated"
    queues.open(jobs, QueueSettings())
    assert durability_of(engine) == "memory"
