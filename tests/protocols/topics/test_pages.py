"""Pages put together from rendered spans are what reading gives, whatever has become of the records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.engine import Batch, Config, Engine
from strandline.protocols.topics.pages import MAX_BYTES, SPAN, RenderedPage, TopicPages
from strandline.protocols.topics.topics import Topic


@pytest.fixture
def topic(tmp_path: Path) -> Iterator[Topic]:
    with Engine.open(tmp_path, background=False) as engine:
        log = engine.create("log", Config(durability="memory")).wait()
        log.append(Batch([b'"%d"' % number for number in range(1000)])).wait()
        yield Topic(log)


def get(
    pages: TopicPages, topic: Topic, after: int = 0, limit: int = 600, max_bytes: int = 1 << 20
) -> RenderedPage | None:
    return pages.get(topic, after, limit, max_bytes, tags=True, meta=True)


def plain(topic: Topic, after: int = 0, limit: int = 600, max_bytes: int = 1 << 20) -> RenderedPage:
    return RenderedPage.of(topic.log.read(after, limit, max_bytes=max_bytes), tags=True, meta=True)


def test_a_page_is_what_reading_gives(topic: Topic) -> None:
    pages = TopicPages()
    for after in (0, 1, 255, 256, 300, 511, 700):
        assert get(pages, topic, after) == plain(topic, after)


def test_near_the_head_there_is_nothing_to_gain(topic: Topic) -> None:
    assert get(TopicPages(), topic, 1000 // SPAN * SPAN) is None
    assert get(TopicPages(), topic, 1000) is None
    assert get(TopicPages(), topic, 5000) is None


def test_whatever_is_removed_is_gone_at_once(topic: Topic) -> None:
    pages = TopicPages()
    get(pages, topic)
    topic.log.delete(seqs=[50]).wait()
    page = get(pages, topic)
    assert page is not None
    assert b'"$seq":50,' not in page.records
    assert page == plain(topic)


def test_a_loss_is_left_to_those_who_tell_of_it(topic: Topic) -> None:
    pages = TopicPages()
    get(pages, topic)
    topic.log.configure(Config(durability="memory", cap_records=600)).wait()
    assert get(pages, topic) is None
    assert plain(topic).tombstone != b"null"


def test_nothing_is_passed_over_behind_a_gap(topic: Topic) -> None:
    topic.log.skip(10, "lost").wait()
    topic.log.append(Batch([b"1"] * 300)).wait()
    assert get(TopicPages(), topic, 1000 // SPAN * SPAN) is None


def test_what_is_kept_is_bounded(tmp_path: Path) -> None:
    with Engine.open(tmp_path, background=False) as engine:
        topic = Topic(engine.create("log", Config(durability="memory")).wait())
        topic.log.append(Batch([b'"%b"' % (b"y" * 4_000)] * (SPAN * 60))).wait()
        pages = TopicPages()
        for number in range(60):
            assert get(pages, topic, number * SPAN, SPAN, 8 << 20) == plain(topic, number * SPAN, SPAN, 8 << 20)
        assert pages._bytes <= MAX_BYTES


Operation = tuple[str, Any]
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 400)),
        st.tuples(st.just("delete"), st.lists(st.integers(1, 2000), max_size=30)),
        st.tuples(st.just("before"), st.integers(0, 1500)),
        st.tuples(st.just("key"), st.sampled_from("ab")),
        st.tuples(st.just("skip"), st.integers(1, 20)),
        st.tuples(st.just("cap"), st.integers(0, 900)),
    ),
    max_size=12,
)


def do(topic: Topic, operation: str, argument: Any) -> None:
    log = topic.log
    if operation == "append":
        keys = ["a" if number % 7 == 0 else "b" if number % 5 == 0 else None for number in range(argument)]
        metas = [b'{"m":1}' if number % 11 == 0 else None for number in range(argument)]
        log.append(Batch([b"[%d]" % number for number in range(argument)], keys=keys, metas=metas)).wait()
    elif operation == "delete":
        log.delete(seqs=argument or [1]).wait()
    elif operation == "before":
        log.delete(before=argument).wait()
    elif operation == "key":
        log.delete(key=argument).wait()
    elif operation == "skip":
        log.skip(argument, "lost").wait()
    elif operation == "cap":
        log.configure(Config(durability="memory", cap_records=argument)).wait()


@settings(max_examples=60, deadline=None)
@given(
    operations=OPERATIONS,
    reads=st.lists(
        st.tuples(st.integers(0, 2000), st.integers(64, 1000), st.integers(1, 20_000)), min_size=1, max_size=6
    ),
)
def test_pages_are_what_reading_gives_after_anything(
    tmp_path_factory: pytest.TempPathFactory, operations: list[Operation], reads: list[tuple[int, int, int]]
) -> None:
    with Engine.open(tmp_path_factory.mktemp("pages"), background=False) as engine:
        topic = Topic(engine.create("log", Config(durability="memory")).wait())
        do(topic, "append", 700)
        pages = TopicPages()
        for operation, argument in [("append", 100), *operations]:
            do(topic, operation, argument)
            for after, limit, max_bytes in reads:
                page = get(pages, topic, after, limit, max_bytes)
                if page is None:
                    continue
                expected = plain(topic, after, limit, max_bytes)
                assert json.loads(b"[%b]" % page.records) == json.loads(b"[%b]" % expected.records)
                assert (page.head, page.earliest, page.tombstone) == (expected.head, expected.earliest, b"null")
                # Records that are gone may be passed over with this page or with the next one.
                rest, expected_rest = (topic.log.read(at, 10) for at in (page.next_after, expected.next_after))
                assert rest.seqs == expected_rest.seqs
                assert rest.tombstone == expected_rest.tombstone
