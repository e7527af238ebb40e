"""Rendered pages are kept only for as long as they are true."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.engine import Batch, Config, Engine
from strandline.faces.topics.pages import MAX_BYTES, Key, Pages, Rendered
from strandline.faces.topics.topics import Topic


@pytest.fixture
def topic(tmp_path: Path) -> Iterator[Topic]:
    with Engine.open(tmp_path, background=False) as engine:
        log = engine.create("log", Config(durability="memory")).wait()
        log.append(Batch([b"x" * 100] * 200)).wait()
        yield Topic(log)


def key(topic: Topic, after: int = 0, limit: int = 100) -> Key:
    return (topic.log.epoch, after, limit, 1 << 20, False, True)


def read(pages: Pages, topic: Topic, after: int = 0, limit: int = 100) -> tuple[Rendered, bool]:
    """The page, and whether it was kept."""
    place = key(topic, after, limit)
    kept = pages.get(place, topic)
    if kept is not None:
        return kept, True
    rendered = Rendered.of(topic.log.read(after, limit), tags=False, meta=True)
    pages.offer(place, topic, rendered)
    return rendered, False


def test_a_page_is_kept_when_it_is_asked_for_again(topic: Topic) -> None:
    pages = Pages()
    assert [read(pages, topic)[1] for _ in range(4)] == [False, False, True, True]


def test_a_kept_page_tells_where_the_log_ends_now(topic: Topic) -> None:
    pages = Pages()
    for _ in range(2):
        read(pages, topic)
    topic.log.append(Batch.of(b"more")).wait()
    page, kept = read(pages, topic)
    assert kept
    assert (page.next_after, page.head) == (100, 201)


def test_a_page_at_the_head_is_not_kept(topic: Topic) -> None:
    pages = Pages()
    assert [read(pages, topic, after=100)[1] for _ in range(4)] == [False] * 4


def test_whatever_is_removed_is_gone_at_once(topic: Topic) -> None:
    pages = Pages()
    for _ in range(3):
        read(pages, topic)
    topic.log.delete(seqs=[50]).wait()
    page, kept = read(pages, topic)
    assert not kept
    assert b'"$seq":50,' not in page.records
    assert page.next_after == 101


def test_an_evicted_page_shows_the_loss(topic: Topic) -> None:
    pages = Pages()
    for _ in range(3):
        read(pages, topic)
    topic.log.configure(Config(durability="memory", cap_records=150)).wait()
    page, kept = read(pages, topic)
    assert not kept
    assert page.tombstone != b"null"


def test_what_is_kept_is_bounded(topic: Topic) -> None:
    pages = Pages()
    topic.log.append(Batch([b"y" * 100_000] * 400)).wait()
    for after in range(200, 590):
        for _ in range(2):
            read(pages, topic, after=after, limit=2)
    held = sum(pages.get(key(topic, after, 2), topic) is not None for after in range(200, 590))
    assert 0 < held <= MAX_BYTES // 200_000
    assert pages.get(key(topic, 589, 2), topic) is not None
    assert pages.get(key(topic, 200, 2), topic) is None
