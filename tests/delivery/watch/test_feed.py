from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.watch_readers import Notebook, Stand, Subject, Texts, notes, on_a_stand, settle, write

from strandline.delivery.watch import FeedPosition
from strandline.engine import Engine, Page
from strandline.engine.testing.fault_disk import FaultDisk


def test_a_reader_gets_what_there_is_and_then_what_comes(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        log = stand.make()
        write(log, "one", "two")
        place = stand.place(Subject(log), Texts())
        await settle()
        write(log, "three")
        await settle()
        assert notes(place) == [[(1, "one"), (2, "two")], [(3, "three")]]
        assert not place.behind

    on_a_stand(tmp_path, scenario)


def test_readers_at_the_same_place_share_one_rendering(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        log = stand.make()
        subject, view = Subject(log), Texts()
        places = [stand.place(subject, view) for _ in range(200)]
        await settle()
        write(log, "news")
        # A slice of time may end in between on a busy machine; nearly everybody still shares.
        await settle(lambda: all(notes(place) for place in places))
        assert all(notes(place) == [[(1, "news")]] for place in places)
        assert view.rendered < 20
        assert notes(places[0])[0] is notes(places[1])[0]

    on_a_stand(tmp_path, scenario)


def test_a_reader_that_does_not_keep_up_gets_the_more_at_once_later(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        log = stand.make()
        reader = Notebook()
        place = stand.place(Subject(log), Texts(), reader=reader)
        await settle()
        reader.busy = True
        for text in "abc":
            write(log, text)
            await settle()
        assert reader.got == []
        assert place.behind
        reader.busy = False
        assert place.feed is not None
        place.feed.queue(place)
        await settle()
        assert reader.got == [[(1, "a"), (2, "b"), (3, "c")]]

    on_a_stand(tmp_path, scenario)


def test_a_long_backlog_comes_in_pages_and_others_are_served_in_between(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        log = stand.make()
        write(log, *"abcdef")
        order: list[FeedPosition] = []
        subject, view = Subject(log), Texts(limit=2)
        places = [stand.place(subject, view), stand.place(subject, view)]
        for place in places:
            place.reader.after = order.append  # type: ignore[attr-defined]
        await settle()
        assert [len(page) for page in notes(places[0])] == [2, 2, 2]
        assert order == [places[0], places[1]] * 3

    on_a_stand(tmp_path, scenario)


def test_records_that_a_reader_does_not_want_move_its_cursor_only(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        log = stand.make()
        place = stand.place(Subject(log), Texts(without="me"))
        write(log, "mine", node="me")
        await settle()
        assert notes(place) == []
        assert place.cursor == 1

    on_a_stand(tmp_path, scenario)


def test_a_loss_is_reported_once(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        log = stand.make(cap_records=2)
        write(log, *"abcd")
        place = stand.place(Subject(log), Texts())
        await settle()
        write(log, "e")
        await settle()
        assert notes(place) == [[(1, 2), (3, "c"), (4, "d")], [(5, "e")]]

    on_a_stand(tmp_path, scenario)


def test_a_cursor_of_an_earlier_log_of_the_name_is_recognised(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        write(old := stand.make(), "old")
        place = FeedPosition(Notebook(), Subject(old), 1, Texts())
        old.drop().wait()
        write(new := stand.make(), "new")
        place.subject = Subject(new)
        assert place.behind
        stand.feeds.attach(place)
        assert place.feed is not None
        place.feed.queue(place)
        await settle()
        assert notes(place) == [[(1, 1), (1, "new")]]
        assert place.epoch == new.epoch

    on_a_stand(tmp_path, scenario)


def test_a_delete_takes_effect_for_those_who_have_not_got_theirs_yet(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        log = stand.make()
        write(log, "secret", "plain")
        subject, view = Subject(log), Texts()
        first = Notebook()
        first.after = lambda place: log.delete(seqs=[1]).wait() and None  # type: ignore[func-returns-value]
        stand.place(subject, view, reader=first)
        second = stand.place(subject, view)
        await settle()
        assert first.got == [[(1, "secret"), (2, "plain")]]
        assert notes(second) == [[(2, "plain")]]

    on_a_stand(tmp_path, scenario)


def test_the_end_of_a_log_is_told_at_once_and_nothing_of_it_is_kept(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        log = stand.make()
        place = stand.place(Subject(log), Texts())
        write(log, "a", "b")
        log.drop().wait()
        await settle()
        assert place.reader.ended == [2]  # type: ignore[attr-defined]
        assert place.feed is None
        assert len(stand.feeds) == 0

    on_a_stand(tmp_path, scenario)


def test_somebody_who_has_left_is_told_nothing_and_can_come_back(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        log = stand.make()
        place = stand.place(Subject(log), Texts())
        stand.feeds.detach(place)
        write(log, "a")
        await settle()
        assert notes(place) == []
        assert len(stand.feeds) == 0
        stand.feeds.attach(place)
        write(log, "b")
        await settle()
        assert notes(place) == [[(1, "a"), (2, "b")]]

    on_a_stand(tmp_path, scenario)


def test_what_is_not_in_memory_is_fetched_once_for_everybody(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        log = stand.make()
        write(log, "sealed")
        stand.engine.seal()
        write(log, "tail")
        assert log.read_resident() is None
        subject, view = Subject(log), Texts()
        places = [stand.place(subject, view) for _ in range(3)]
        live = stand.place(subject, view, cursor=1)
        await settle(lambda: all(map(notes, places)))
        assert all(notes(place) == [[(1, "sealed"), (2, "tail")]] for place in places)
        assert notes(live) == [[(2, "tail")]]
        assert view.rendered == 2

    on_a_stand(tmp_path, scenario)


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        log = stand.make()
        write(log, "sealed")
        stand.engine.seal()
        for path in tmp_path.rglob("*"):
            if path.is_file() and "segment" in str(path.relative_to(tmp_path)):
                path.unlink()
        place = stand.place(Subject(log), Texts())
        reader = place.reader
        assert isinstance(reader, Notebook)
        await settle(lambda: bool(reader.failures))
        assert reader.got == []

    on_a_stand(tmp_path, scenario)


# --- what is durable -----------------------------------------------------------------------------------------------


class Durable(Texts):
    """Takes down whether everything that was written was durable when it was asked to show something."""

    __slots__ = ("engine", "was_durable")

    def __init__(self, engine: Engine, strong: bool) -> None:
        super().__init__(strong=strong)
        self.engine = engine
        self.was_durable: list[bool] = []

    def render(self, subject: Subject, after: int, page: Page) -> list[Any]:
        self.was_durable.append(self.engine.journal.flushed == self.engine.journal.written)
        return super().render(subject, after, page)


def test_a_strong_reader_gets_only_what_is_durable(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        log = stand.make(durability="disk")
        subject = Subject(log)
        write(log, "a")
        eager_view, strong_view = Durable(stand.engine, False), Durable(stand.engine, True)
        eager, strong = stand.place(subject, eager_view), stand.place(subject, strong_view)
        await settle()
        for text in "bcd":
            write(log, text)
            await settle()
        assert [text for page in notes(strong) for _, text in page] == list("abcd")
        assert notes(eager) == notes(strong)
        assert all(strong_view.was_durable)
        assert not all(eager_view.was_durable)

    on_a_stand(FaultDisk(tmp_path), scenario)


def test_a_strong_reader_does_not_wait_where_everything_visible_is_durable(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        logs = [stand.make(name, durability=name) for name in ("fsync", "ephemeral")]
        places = [stand.place(Subject(log), Texts(strong=True)) for log in logs]
        for log in logs:
            write(log, "a")
        await settle()
        assert [notes(place) for place in places] == [[[(1, "a")]]] * 2

    on_a_stand(FaultDisk(tmp_path), scenario)


def test_a_strong_reader_is_cut_off_at_the_durable_head_while_writing_goes_on(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        log = stand.make(durability="disk")
        write(log, "a")
        write(log, "b")
        mail: list[Callable[[], None]] = []
        stand.hub.post = mail.append  # type: ignore[method-assign]
        place = stand.place(Subject(log), Texts(strong=True))
        await settle()
        assert notes(place) == []  # it has asked for the first two to be made durable, and waits for the answer
        write(log, "c")
        await settle()
        mail.pop(0)()
        await settle()
        assert notes(place) == [[(1, "a"), (2, "b")]]
        assert place.cursor == 2
        mail.pop(0)()
        await settle()
        assert notes(place)[1:] == [[(3, "c")]]

    on_a_stand(FaultDisk(tmp_path), scenario)


# --- when the server is too busy -----------------------------------------------------------------------------------


def test_logs_of_negative_priority_wait_while_the_server_is_busy(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        low, high = stand.make("low"), stand.make("high")
        lesser, greater = stand.place(Subject(low, -1), Texts()), stand.place(Subject(high), Texts())
        await settle()
        stand.pressure.shedding = True
        write(low, "a", "b")
        write(high, "c")
        await settle()
        assert notes(lesser) == []
        assert notes(greater) == [[(1, "c")]]
        assert lesser.reader.paces == 1  # type: ignore[attr-defined]
        stand.pressure.shedding = False
        stand.feeds.retry()
        await settle()
        assert notes(lesser) == [[(1, "a"), (2, "b")]]
        assert lesser.reader.paces == 1  # type: ignore[attr-defined]

    on_a_stand(tmp_path, scenario)


def test_delivering_counts_as_consuming(tmp_path: Path) -> None:
    async def scenario(stand: Stand) -> None:
        log = stand.make()
        subject = Subject(log)
        stand.place(subject, Texts())
        await settle()
        assert subject.consumed_at is None
        stand.clock.advance(5)
        write(log, "a")
        await settle()
        assert subject.consumed_at == stand.clock.now()

    on_a_stand(tmp_path, scenario)


# --- a law ---------------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 4)),
        st.tuples(st.just("delete"), st.integers(1, 30)),
        st.tuples(st.just("busy"), st.integers(0, 2)),
        st.tuples(st.just("ready"), st.integers(0, 2)),
        st.tuples(st.just("leave"), st.integers(0, 2)),
        st.tuples(st.just("come"), st.integers(0, 2)),
        st.tuples(st.just("turn"), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, limits=st.lists(st.integers(1, 5), min_size=3, max_size=3))
def test_everybody_gets_every_record_once_in_order_whatever_they_do(
    steps: list[tuple[str, int]], limits: list[int]
) -> None:
    async def scenario(stand: Stand) -> None:
        log = stand.make(durability="memory")
        subject = Subject(log)
        places = [stand.place(subject, Texts(limit)) for limit in limits]
        deleted: set[int] = set()
        for step, number in steps:
            await apply(stand, places, deleted, step, number)
        for place in places:
            place.reader.busy = False  # type: ignore[attr-defined]
            if place.feed is None:
                stand.feeds.attach(place)
            assert place.feed is not None
            place.feed.queue(place)
        await settle()
        for place in places:
            seqs = [seq for page in notes(place) for seq, _ in page]
            assert seqs == sorted(set(seqs))
            # What was deleted may have been delivered before; nothing else may be missing.
            assert set(range(1, log.head + 1)) - deleted <= set(seqs)

    on_a_stand(Path(mkdtemp()), scenario)


async def apply(stand: Stand, places: list[FeedPosition], deleted: set[int], step: str, number: int) -> None:
    log = places[0].subject.log
    if step == "write":
        write(log, *map(str, range(number)))
    elif step == "delete":
        log.delete(seqs=[number]).wait()
        deleted.update({number} & set(range(1, log.head + 1)))
    elif step in ("busy", "ready"):
        place = places[number]
        place.reader.busy = step == "busy"  # type: ignore[attr-defined]
        if step == "ready" and place.feed is not None:
            place.feed.queue(place)
    elif step == "leave":
        stand.feeds.detach(places[number])
    elif step == "come" and places[number].feed is None:
        stand.feeds.attach(places[number])
    elif step == "turn":
        await settle()


@pytest.mark.parametrize("sealed", [False, True])
def test_a_reader_that_fails_in_every_way_keeps_nobody_else_waiting(tmp_path: Path, sealed: bool) -> None:
    class Broken(Notebook):
        def deliver(self, place: FeedPosition) -> None:
            raise RuntimeError("a defect")

        def failed(self, place: FeedPosition, error: Exception) -> None:
            raise RuntimeError("another one")

        def gone(self, place: FeedPosition) -> None:
            raise RuntimeError("and another one")

    async def scenario(stand: Stand) -> None:
        log = stand.make()
        write(log, "1")
        if sealed:
            stand.engine.seal()
        subject, view = Subject(log), Texts()
        stand.place(subject, view, reader=Broken())
        other = stand.place(subject, view)
        await settle(lambda: bool(notes(other)))
        write(log, "2")
        await settle(lambda: len(notes(other)) == 2)
        log.drop().wait()
        assert isinstance(other.reader, Notebook)
        await settle(lambda: other.reader.ended == [2])  # type: ignore[attr-defined]

    on_a_stand(tmp_path, scenario)


def test_what_cannot_be_shown_after_it_was_fetched_is_told_to_its_readers(tmp_path: Path) -> None:
    class Broken(Texts):
        def render(self, subject: Subject, after: int, page: Page) -> list[Any]:
            raise RuntimeError("a defect")

    async def scenario(stand: Stand) -> None:
        log = stand.make()
        write(log, "1")
        stand.engine.seal()
        assert log.read_resident() is None
        place = stand.place(Subject(log), Broken())
        assert isinstance(place.reader, Notebook)
        await settle(lambda: bool(place.reader.failures))  # type: ignore[attr-defined]

    on_a_stand(tmp_path, scenario)
