"""The kernel: rules about removing logs that hold for all protocols, and waiting for what is on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from strandline.delivery.routers.router import RouterDefinition
from strandline.engine import Batch, Engine, ManualClock
from strandline.protocols.streams import errors as streams_errors
from strandline.protocols.topics import errors as topics_errors
from strandline.service.access import ALL_SCOPES, Access
from strandline.service.http import Reply
from strandline.service.kernel import Kernel
from strandline.service.log_config import TopicConfig, engine_config
from strandline.service.problems import FORBIDDEN, Refusal

TENANT = Access("tenant", ALL_SCOPES, ("mine",))


def in_kernel(place: Path, scenario: Callable[[Kernel], None]) -> None:
    async def main() -> None:
        with Engine.open(place, clock=ManualClock(1_000_000), background=False) as engine:
            kernel = Kernel.for_tests(engine)
            try:
                scenario(kernel)
            finally:
                kernel.stop()
            assert engine.created == []

    asyncio.run(main())


def queue(kernel: Kernel, name: str, **config: object) -> None:
    wanted = TopicConfig(type="queue", **config)  # type: ignore[arg-type]
    kernel.catalog.create(name, engine_config(name, wanted, "queue"))


@pytest.mark.parametrize(
    ("refuse", "noun"), [(topics_errors.refuse, "topic"), (streams_errors.refuse, "stream")], ids=["topics", "streams"]
)
def test_a_log_with_a_router_of_somebody_else_is_not_removed(
    tmp_path: Path, refuse: Callable[[Refusal], Reply], noun: str
) -> None:
    def scenario(kernel: Kernel) -> None:
        mine, _ = kernel.catalog.create("mine")
        theirs, _ = kernel.catalog.create("theirs")
        kernel.check_removable(mine, TENANT)
        kernel.routers.put(RouterDefinition(name="mine-router", source=mine.name, dest=theirs.name))
        with pytest.raises(Refusal) as refused:
            kernel.check_removable(mine, TENANT)
        assert refused.value.problem is FORBIDDEN
        # Each protocol has its own word for a log.
        error = msgspec.json.decode(refuse(refused.value).body)["error"]
        assert error.get("detail", error)[noun] == "mine"

    in_kernel(tmp_path, scenario)


def test_routers_and_leases_go_with_their_log(tmp_path: Path) -> None:
    def scenario(kernel: Kernel) -> None:
        engine = kernel.engine
        queue(kernel, "jobs")
        jobs, (other, _) = engine.log("jobs"), kernel.catalog.create("other")
        kernel.routers.put(RouterDefinition(name="r", source=other.name, dest=jobs.name))
        jobs.append(Batch([b"1"])).wait()
        kernel.queue(jobs).claim("worker", 1)
        assert kernel.catalog.queues == 1
        leases = [name for name in engine.names() if name.startswith("__leases__")]
        assert leases
        kernel.catalog.remove(jobs)
        assert kernel.catalog.queues == 0
        assert kernel.routers.touching(other) == []
        assert not [name for name in engine.names() if name.startswith("__leases__")]

    in_kernel(tmp_path, scenario)
