from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from support.replicas import FaultyStore, kinds

from strandline.engine.errors import DamagedFile, Superseded
from strandline.engine.replica.chain import Chain
from strandline.engine.replica.chunk import ChunkKind, End, JournalPart, Piece, State, Term, chunk_name, content_of
from strandline.engine.replica.leader import Leader, write_leader

TERM = Term("host:1", 1)
STATE = State(b"manifest", [], 1)


def part(data: bytes) -> JournalPart:
    return JournalPart([Piece(1, 0, data)], 1)


def led(store: FaultyStore) -> Chain:
    chain = Chain(store)
    chain.find_end()
    chain.take_over(TERM)
    return chain


def test_a_new_chain_begins_with_a_term() -> None:
    store = FaultyStore()
    chain = Chain(store)
    assert chain.find_end() is None
    chain.take_over(TERM)
    assert (chain.number, chain.term, chain.terms, chain.state) == (1, 1, [1], 0)
    assert chain.add(STATE) == 2
    assert chain.add(part(b"x")) == 3
    assert (chain.number, chain.state) == (3, 2)
    assert kinds(store) == [ChunkKind.TERM, ChunkKind.STATE, ChunkKind.JOURNAL]


def test_the_next_server_continues_where_the_chain_ends() -> None:
    store = FaultyStore()
    first = led(store)
    first.add(STATE)
    first.add(part(b"x"))
    second = led(store)
    assert (second.number, second.term, second.terms, second.state) == (4, 2, [1, 4], 2)
    assert not second.is_complete


def test_a_server_that_was_replaced_stores_nothing_more() -> None:
    store = FaultyStore()
    first = led(store)
    first.add(STATE)
    second = led(store)
    write_leader(store, Leader(second.term, "other:2"))
    before = dict(store.objects)
    for _ in range(2):
        with pytest.raises(Superseded, match=r"another server at other:2 has taken over \(term 2, after term 1"):
            first.add(part(b"x")) if first.is_settled else first.settle()
    assert store.objects == before
    assert second.add(part(b"y")) == 4


def test_who_has_taken_over_is_unknown_if_the_hint_is_missing_or_damaged() -> None:
    store = FaultyStore()
    first = led(store)
    led(store)
    store.put("leader", b"{")
    with pytest.raises(Superseded, match="term unknown"):
        first.add(STATE)


def test_of_two_servers_that_take_over_at_once_one_leads() -> None:
    store = FaultyStore()
    led(store).add(STATE)
    second, third = Chain(store), Chain(store)
    second.find_end()
    third.find_end()
    third.take_over(TERM)
    with pytest.raises(Superseded):
        second.take_over(TERM)
    assert third.add(STATE) == 4


def test_a_takeover_follows_a_server_that_is_still_writing() -> None:
    store = FaultyStore()
    first = led(store)
    first.add(STATE)
    second = Chain(store)
    second.find_end()
    first.add(part(b"x"))
    first.add(STATE)
    second.take_over(TERM)
    assert (second.number, second.term, second.state) == (5, 2, 4)
    with pytest.raises(Superseded):
        first.add(part(b"y"))


def test_a_chunk_whose_answer_was_lost_is_not_stored_twice() -> None:
    store = FaultyStore()
    chain = led(store)
    for fate in ("unanswered", "lost"):
        store.creations = [fate]  # type: ignore[list-item]
        with pytest.raises(OSError, match=r"no answer|was lost"):
            chain.add(part(fate.encode()))
        assert not chain.is_settled
        chain.settle()
        assert chain.is_settled
    assert chain.number == 3
    found = [chain.read(number) for number in (2, 3)]
    assert [content_of(each, JournalPart).pieces[0].data for each in found if each] == [b"unanswered", b"lost"]


def test_a_doubtful_state_counts_once_it_is_stored() -> None:
    store = FaultyStore()
    chain = led(store)
    store.creations = ["unanswered"]
    with pytest.raises(OSError, match="no answer"):
        chain.add(STATE)
    assert chain.state == 0
    chain.settle()
    assert (chain.number, chain.state) == (2, 2)


def test_a_doubtful_chunk_that_was_not_stored_before_a_takeover_is_lost() -> None:
    store = FaultyStore()
    first = led(store)
    store.creations = ["lost"]
    with pytest.raises(OSError, match="was lost"):
        first.add(part(b"x"))
    led(store)
    with pytest.raises(Superseded):
        first.settle()


def test_a_doubtful_chunk_that_was_stored_before_a_takeover_counts() -> None:
    store = FaultyStore()
    first = led(store)
    store.creations = ["unanswered"]
    with pytest.raises(OSError, match="no answer"):
        first.add(part(b"x"))
    led(store)
    first.settle()
    with pytest.raises(Superseded):
        first.add(part(b"y"))


def test_chunks_are_removed_except_the_beginnings_of_terms() -> None:
    store = FaultyStore()
    first = led(store)
    first.add(STATE)
    second = led(store)
    second.add(part(b"x"))
    second.add(STATE)
    second.remove_before(5)
    assert store.names("chunks") == [chunk_name(number) for number in (1, 3, 5)]
    second.add(part(b"y"))
    second.add(STATE)
    second.remove_before(7)
    assert store.names("chunks") == [chunk_name(number) for number in (1, 3, 7)]


def test_a_replaced_server_is_fenced_after_all_its_chunks_were_removed() -> None:
    store = FaultyStore()
    first = led(store)
    first.add(STATE)
    second = led(store)
    second.add(part(b"x"))
    second.add(STATE)
    second.remove_before(5)
    with pytest.raises(Superseded):
        first.add(part(b"late"))
    third = led(store)
    third.add(STATE)
    third.remove_before(7)
    with pytest.raises(Superseded):
        second.add(part(b"late"))


def test_a_takeover_at_a_number_that_was_removed_does_not_count() -> None:
    store = FaultyStore()
    first = led(store)
    first.add(STATE)
    second = Chain(store)
    second.find_end()
    # While the second server is paused, the number that it wants to create is used and removed.
    first.add(part(b"x"))
    first.add(STATE)
    first.remove_before(4)
    second.take_over(TERM)
    assert (second.number, second.term) == (5, 2)
    with pytest.raises(Superseded):
        first.add(part(b"y"))
    second.add(STATE)
    second.remove_before(6)
    assert store.names("chunks") == [chunk_name(number) for number in (1, 5, 6)]


def test_a_takeover_at_a_removed_number_fails_if_another_server_has_taken_over() -> None:
    store = FaultyStore()
    first = led(store)
    first.add(STATE)
    second = Chain(store)
    second.find_end()
    first.add(part(b"x"))
    first.add(STATE)
    first.remove_before(4)
    third = led(store)
    with pytest.raises(Superseded):
        second.take_over(TERM)
    assert third.add(STATE) == 6


def test_the_end_of_a_term_makes_the_chain_complete() -> None:
    store = FaultyStore()
    first = led(store)
    first.add(STATE)
    first.add(End())
    second = led(store)
    assert second.is_complete
    assert not led(store).is_complete


def test_a_missing_beginning_of_a_term_is_damage() -> None:
    store = FaultyStore()
    led(store).add(STATE)
    store.delete(chunk_name(1))
    with pytest.raises(DamagedFile, match=r"chunks/0{15}1 is damaged: the chunk is missing"):
        Chain(store).find_end()


def test_a_chunk_that_is_removed_while_the_end_is_searched_is_passed() -> None:
    class Removing(FaultyStore):
        before_read: Callable[[], object] = staticmethod(lambda: None)

        def read(self, name: str) -> bytes | None:
            act, self.before_read = self.before_read, lambda: None
            act()
            return super().read(name)

    store = Removing()
    first = led(store)
    first.add(STATE)

    def go_on() -> None:
        first.add(STATE)
        first.remove_before(3)

    store.before_read = go_on
    second = Chain(store)
    end = second.find_end()
    assert end is not None
    assert (end.number, second.number) == (3, 3)


def test_a_server_that_is_always_overtaken_gives_up() -> None:
    class Busy(FaultyStore):
        leader: Chain | None = None

        def create(self, name: str, data: bytes) -> bool:
            leader, self.leader = self.leader, None
            if leader is not None:
                leader.add(part(b"x"))
                self.leader = leader
            return super().create(name, data)

    store = Busy()
    store.leader = None
    first = led(store)
    first.add(STATE)
    store.leader = first
    with pytest.raises(OSError, match="faster than this one can take over") as caught:
        led(store)
    assert caught.value.errno != errno.EEXIST


def test_a_conflict_between_requests_is_not_a_takeover(monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 refuses one of two conditional requests at the same time, after which the object may not exist."""
    store = FaultyStore()
    chain = led(store)
    monkeypatch.setattr(store, "create", lambda name, data: False)
    with pytest.raises(OSError, match="conflicting request"):
        chain.add(STATE)
    monkeypatch.undo()
    chain.settle()
    assert (chain.number, kinds(store)) == (2, [ChunkKind.TERM, ChunkKind.STATE])
