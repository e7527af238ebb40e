"""Topics by way of the client."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from support.either_client import Run

from strandline.client import BadAnswer, Conflict, Draft, NotFound, Record, RecordsLost, Tombstone, Write
from strandline.client.topic_types import TopicConfig, TopicConfigArguments
from strandline.service.log_config import TopicConfig as ServerTopicConfig


class Order(msgspec.Struct):
    item: str
    cents: int


async def listed(records: Any) -> list[Any]:
    return [record async for record in records]


def test_a_record_knows_its_time() -> None:
    assert Record(1, 1_700_000_000_123, None).time == datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)


def test_what_is_written_is_read(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        topic = client.topic(name)
        first = await topic.write({"item": "book"}, tag="ann", node="till-1", meta={"trace": 1})
        assert (first.first_seq, first.last_seq, first.created, first.deduped) == (1, 1, True, False)
        many = await topic.write_many([1, Draft("two", tag="bob"), None])
        assert list(many.seqs) == [2, 3, 4]
        records = await listed(topic.read())
        assert [(record.seq, record.data, record.tag) for record in records] == [
            (1, {"item": "book"}, "ann"),
            (2, 1, None),
            (3, "two", "bob"),
            (4, None, None),
        ]
        assert (records[0].node, records[0].meta) == ("till-1", {"trace": 1})
        assert [record.seq for record in await listed(topic.read(2))] == [3, 4]

    run(scenario)


def test_data_has_the_type_that_is_asked_for(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        topic = client.topic(name, Order)
        await topic.write(Order("book", 1250))
        (record,) = await listed(topic.read())
        assert record.data == Order("book", 1250)
        await client.topic(name).write({"item": 7})
        with pytest.raises(BadAnswer, match="item"):
            await listed(topic.read())

    run(scenario)


def test_a_page_says_where_to_go_on(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        topic = client.topic(name)
        await topic.write_many(Draft(number, tag=f"t{number % 2}") for number in range(10))
        page = await topic.diff(0, limit=4)
        assert ([record.data for record in page.records], page.next_from_seq, page.caught_up) == (
            [0, 1, 2, 3],
            4,
            False,
        )
        page = await topic.diff(page.next_from_seq, match="t1")
        assert ([record.data for record in page.records], page.caught_up, page.lag) == ([5, 7, 9], True, 0)
        assert [record.data for record in await listed(topic.read(page_size=3))] == list(range(10))
        assert [record.data for record in await listed(topic.read(latest=True))] == [8, 9]

    run(scenario)


def test_an_idempotency_key_counts_once(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        topic = client.topic(name)
        first = await topic.write("paid", idempotency_key="order-1")
        again = await topic.write("paid", idempotency_key="order-1")
        assert (again.deduped, again.seqs) == (True, first.seqs)
        assert len(await listed(topic.read())) == 1

    run(scenario)


def test_several_topics_are_written_in_one_step(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        writes = [Write(f"{name}:ann", [-5]), Write(f"{name}:bob", [Draft(5, tag="in")])]
        done = await client.write(writes, idempotency_key="transfer")
        assert [(one.topic, one.first_seq) for one in done] == [(f"{name}:ann", 1), (f"{name}:bob", 1)]
        assert all(one.deduped for one in await client.write(writes, idempotency_key="transfer"))
        assert [row.topic async for row in client.topics(prefix=name)] == [f"{name}:ann", f"{name}:bob"]

    run(scenario)


def test_lost_records_are_never_passed_over_in_silence(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        topic = client.topic(name)
        await topic.configure(cap_records=3)
        await topic.write_many(range(1, 6))
        with pytest.raises(RecordsLost) as caught:
            await listed(topic.read())
        assert (caught.value.tombstone.gap_from, caught.value.tombstone.gap_to) == (1, 2)
        assert [record.data for record in await listed(topic.read(caught.value.after))] == [3, 4, 5]
        told: list[Tombstone] = []
        assert [record.data for record in await listed(topic.read(on_loss=told.append))] == [3, 4, 5]
        assert [tombstone.reason for tombstone in told] == ["cap"]

    run(scenario)


def test_a_consumer_reads_on_behind_what_it_committed(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        topic = client.topic(name)
        await topic.write_many(range(10))
        billing = topic.consumer("billing")
        with pytest.raises(NotFound) as caught:
            await billing.position()
        assert caught.value.code == "consumer_not_found"
        seen: list[list[Record[int]]] = []
        async for batch in billing.batches(size=4):
            seen.append(batch)
            if len(seen) == 2:
                break
        # The first batch was committed when the second was asked for; the second was not dealt with yet.
        assert (await billing.position()).seq == 4
        assert [record.data for record in (await billing.diff()).records] == [4, 5, 6, 7, 8, 9]
        assert [[record.data for record in batch] async for batch in billing.batches(size=4)] == [[4, 5, 6, 7], [8, 9]]
        assert (await billing.position()).lag == 0
        assert (await billing.commit(2)).lag == 8
        assert {who: state.seq for who, state in (await topic.consumers()).items()} == {"billing": 2}
        assert await billing.delete()
        assert not await billing.delete()

    run(scenario)


def test_a_topic_is_configured_looked_at_and_deleted(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        topic = client.topic(name)
        with pytest.raises(NotFound) as caught:
            await topic.state()
        assert (caught.value.status, caught.value.code, caught.value.detail) == (
            404,
            "topic_not_found",
            {"topic": name},
        )
        configured = await topic.configure(durability="fsync", cap_records=100)
        assert (configured.created, configured.config.durability) == (True, "fsync")
        await topic.write_many([Draft(1, tag="a"), Draft(2, tag="b"), Draft(3, tag="b")])
        assert (await topic.delete_records(match="a")).deleted == 1
        assert (await topic.delete_records(before_seq=3)).count == 1
        state = await topic.state(touch=False)
        assert (state.count, state.head_seq, state.config.cap_records) == (1, 3, 100)
        with pytest.raises(Conflict):
            await topic.delete(if_empty=True)
        assert (await topic.delete()).deleted
        assert not (await topic.delete()).deleted

    run(scenario)


def test_configure_replaces_and_update_merges(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        topic, queue = client.topic(name), client.queue(f"{name}:jobs")
        with pytest.raises(NotFound):
            await topic.update(cap_records=1)
        await topic.configure(durability="fsync", cap_records=100, priority=3)
        updated = (await topic.update(cap_records=5, priority=None)).config
        assert (updated.durability, updated.cap_records, updated.priority) == ("fsync", 5, None)
        replaced = (await topic.configure(ttl_ms=9)).config
        assert (replaced.durability, replaced.cap_records, replaced.ttl_ms) == ("disk", 0, 9)
        await queue.configure(lease_ms=2000)
        changed = (await queue.update(max_deliveries=3)).config
        assert (changed.type, changed.lease_ms, changed.max_deliveries) == ("queue", 2000, 3)

    run(scenario)


def test_a_topic_keeps_its_search_configuration_unless_another_is_given(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        topic = client.topic(name)
        binding = {"version": 1, "jsonPointer": "/page"}
        search = {"fields": {"page": {"kind": "keyword", "exact": True, "bindings": [binding]}}}
        assert (await topic.configure(search=search)).config.search == search
        assert (await topic.update(cap_records=5)).config.search == search
        assert (await topic.configure(cap_records=5)).config.search == search
        assert (await topic.update(search=None)).config.search is None
        assert (await topic.state()).config.search is None

    run(scenario)


def test_an_unknown_member_of_a_configuration_is_a_type_error(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        topic, queue = client.topic(name), client.queue(name)
        with pytest.raises(TypeError, match=r"configure\(\) got .*'durabilty'; did you mean 'durability'\?"):
            await topic.configure(durabilty="fsync")
        with pytest.raises(TypeError, match="did you mean 'max_deliveries'"):
            await queue.configure(max_delivery=1)
        # The topic does not exist: the member is refused before any request.
        with pytest.raises(TypeError, match=r"update\(\) got .*'cap_record'; did you mean 'cap_records'\?"):
            await topic.update(cap_record=1)

    run(scenario)


def test_the_client_knows_the_members_that_the_server_knows() -> None:
    """``durable`` is the older name of a durability, which the client leaves out."""
    known = set(TopicConfigArguments.__annotations__)
    assert known == set(TopicConfig.__struct_fields__)
    assert known == set(ServerTopicConfig.__struct_fields__) - {"durable"}


def test_a_router_copies(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        router = client.router(f"{name}->big")
        made = await router.configure(name, f"{name}:big", filter="big*")
        assert (made.created, made.filter) == (True, ["tag", "Glob", "big*"])
        await client.topic(name).write_many([Draft(1, tag="big:1"), Draft(2, tag="small")])
        assert [record.data for record in await listed(client.topic(f"{name}:big").read())] == [1]
        assert (await router.state()).forwarded_total == 1
        assert [row.router async for row in client.routers(source=name)] == [f"{name}->big"]
        assert await router.delete()
        with pytest.raises(NotFound):
            await router.state()

    run(scenario)


def test_there_are_more_topics_than_one_page_holds(run: Run, name: str) -> None:
    async def scenario(client: Any) -> None:
        names = [f"{name}:{number:04}" for number in range(1003)]
        await client.write([Write(each, [0]) for each in names])
        assert [row.topic async for row in client.topics(prefix=f"{name}:")] == names

    run(scenario)
