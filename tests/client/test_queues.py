"""Queues by way of the client."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from support.either_client import Run

from strandline.client import Conflict, Draft, NotFound
from strandline.client.queue_calls import due_at


class Mail(msgspec.Struct):
    to: str


def test_a_job_is_claimed_extended_given_back_and_done(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name, Mail, node="w1")
        await queue.configure(lease_ms=60_000)
        await queue.enqueue(Mail("ann"), tag="letters", meta={"trace": 1})
        await queue.enqueue_many([Mail("bob"), Draft(Mail("eve"), priority=10)])
        eve, ann = await queue.claim(2)
        assert (eve.data, eve.priority, ann.data, ann.tag, ann.meta) == (
            Mail("eve"),
            10,
            Mail("ann"),
            "letters",
            {"trace": 1},
        )
        before = ann.deadline
        assert (await queue.extend(ann, lease_ms=600_000)).extended == 1
        assert ann.deadline > before
        assert (await queue.nack(eve)).nacked == 1
        assert (await queue.ack(ann)).acked == 1
        assert (await queue.ack(ann)).skipped == [ann.seq]
        (again,) = await queue.claim()
        assert (again.data, again.deliveries) == (Mail("eve"), 2)
        # The lease of the first delivery counts for nothing any more.
        assert (await queue.ack(eve)).skipped == [eve.seq]
        counters = await queue.counters()
        assert (counters.ready, counters.in_flight) == (1, 1)
        assert await queue.delete()

    run(scenario)


def test_the_first_job_makes_the_queue(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name, Mail, node="w1")
        await queue.enqueue(Mail("ann"))
        (job,) = await queue.claim()
        assert job.data == Mail("ann")
        await queue.configure(max_deliveries=3)
        await queue.enqueue(Mail("bob"))
        assert (await queue.counters()).ready == 1

    run(scenario)


def test_a_job_can_be_kept_back(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure()
        await queue.enqueue("later", not_before=datetime.now(UTC) + timedelta(hours=1))
        assert await queue.claim(10) == []
        await queue.enqueue("now", not_before=1)
        (job,) = await queue.claim(10)
        assert job.data == "now"
        await queue.nack(job, delay_ms=3_600_000)
        assert await queue.claim(10) == []
        assert (await queue.counters()).delayed == 2

    run(scenario)


def test_a_job_can_be_delayed(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.enqueue("later", delay=3600, priority=5)
        await queue.enqueue("much later", delay=timedelta(days=2))
        await queue.enqueue("now", delay=0)
        (job,) = await queue.claim(10)
        assert (job.data, job.time) == ("now", datetime.fromtimestamp(job.ts / 1000, UTC))
        with pytest.raises(ValueError, match="not both"):
            await queue.enqueue("when", delay=1, not_before=1)
        with pytest.raises(ValueError, match="delay must be a number of seconds, 0 or more, got -1"):
            await queue.enqueue("when", delay=-1)
        assert (await queue.counters()).delayed == 2

    run(scenario)


def test_a_delay_is_counted_from_now() -> None:
    assert due_at(1.5, None, lambda: 1000.0) == 1_001_500
    assert due_at(timedelta(minutes=1), None, lambda: 1000.0) == 1_060_000
    assert due_at(None, None) == 0


def test_dead_letters_are_moved_back(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure(max_deliveries=1, dead_letter=f"{name}:dead")
        await queue.enqueue("poison")
        (job,) = await queue.claim()
        await queue.nack(job)
        assert await queue.claim() == []
        assert (await queue.counters()).dead_lettered == 1
        moved = await queue.redrive()
        assert (moved.redriven, moved.to) == (1, {name: 1})
        (job,) = await queue.claim()
        await queue.nack(job)
        assert await queue.claim() == []
        assert (await client.topic(f"{name}:dead").redrive(limit=5)).redriven == 1

    run(scenario)


def test_a_reason_is_sent_with_a_returned_job(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name, node="w1")
        await queue.configure()
        await queue.enqueue("job")
        for reason in ("text", {"code": 7}, ValueError("exception"), "long" * 5_000, None):
            (job,) = await queue.claim()
            await queue.nack(job, reason=reason)
        (job,) = await queue.claim()
        text, code, exception, long = [failure.reason for failure in job.failures]
        assert (text, code, exception) == ("text", {"code": 7}, {"type": "ValueError", "message": "exception"})
        assert long.startswith("longlong")
        assert [failure.delivery for failure in job.failures] == [1, 2, 3, 4]

    run(scenario)


def test_a_queue_is_configured_with_a_backoff(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        configured = await queue.configure(
            retry_delay_ms=3_600_000, retry_backoff=3.0, retry_max_ms=7_200_000, retry_jitter=0.5
        )
        config = configured.config
        assert (config.retry_delay_ms, config.retry_backoff, config.retry_max_ms, config.retry_jitter) == (
            3_600_000,
            3.0,
            7_200_000,
            0.5,
        )
        await queue.enqueue("job")
        (job,) = await queue.claim()
        await queue.nack(job)
        assert (await queue.counters()).delayed == 1
        # Members that are not named keep their values, also those that an answer leaves out.
        assert (await queue.update(retry_delay_ms=0)).config.retry_backoff == 3.0
        await queue.topic.delete_records(before_seq=2)
        await queue.enqueue("another")
        (job,) = await queue.claim()
        await queue.nack(job)
        assert (await queue.counters()).ready == 1

    run(scenario)


def test_one_dead_letter_is_moved_back(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure(max_deliveries=1, dead_letter=f"{name}:dead")
        assert [letter async for letter in queue.dead_letters()] == []
        await queue.enqueue_many(["a", "b", "c"])
        await queue.nack(*await queue.claim(3), reason="no")
        letters = [letter async for letter in queue.dead_letters()]
        assert [(letter.data, letter.reason) for letter in letters] == [("a", "no"), ("b", "no"), ("c", "no")]
        assert (await queue.redrive(seq=letters[1].seq)).redriven == 1
        assert (await client.topic(f"{name}:dead").redrive(seq=letters[1].seq)).redriven == 0
        (job,) = await queue.claim(10)
        assert (job.data, job.deliveries, job.failures) == ("b", 1, [])
        assert [letter.data async for letter in queue.dead_letters(after=letters[0].seq)] == ["c"]
        assert (await queue.redrive(seq=letters[0].seq, data=None)).redriven == 1
        assert (await client.topic(f"{name}:dead").redrive(seq=letters[2].seq, data={"to": "bob"})).redriven == 1
        assert [job.data for job in await queue.claim(10)] == [None, {"to": "bob"}]

    run(scenario)


def test_a_record_that_no_queue_moved_is_a_dead_letter_without_an_origin(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        queue = client.queue(name)
        await queue.configure(max_deliveries=1, dead_letter=f"{name}:dead")
        await client.topic(f"{name}:dead").write("by hand", meta={"$dead_letter_failures": "not a list"})
        (letter,) = [letter async for letter in queue.dead_letters()]
        assert (letter.data, letter.queue, letter.reason, letter.failures) == ("by hand", None, None, [])

    run(scenario)


def test_a_topic_is_no_queue(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        await client.topic(name).write(1)
        with pytest.raises(Conflict) as caught:
            await client.queue(name).claim()
        assert caught.value.code == "not_a_queue"
        with pytest.raises(NotFound):
            await client.queue(name).redrive()

    run(scenario)
