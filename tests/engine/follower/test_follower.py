from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.engines import NOW, fill, make, texts
from support.replicas import FaultyStore, directory, kill, served, start

from strandline.engine import Append, Batch, Config, Engine, Log, ManualClock, Options
from strandline.engine.errors import BadConfig, FollowsLeader, JournalFailed
from strandline.engine.follower.follower import Follower
from strandline.engine.follower.mirror import ChunksRemoved, Mirror, NoLeaderYet
from strandline.engine.journal.file import journal_indexes
from strandline.engine.replica import shipper
from strandline.engine.replica.chain import Chain
from strandline.engine.replica.chunk import State, chunk_name, content_of
from strandline.engine.testing.fault_disk import FaultDisk


class Pair:
    """A leader with a log ``a``, and a server that follows it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = FaultyStore()
        self.leader = start(directory(path, "leader"), self.store)
        fill(make(self.leader, "a"), "1", "2", "3")
        self.ship()
        self.engine = self.follow()

    def follow(self, name: str = "follower") -> Engine:
        (self.path / name).mkdir(exist_ok=True)
        return Engine.follow(
            FaultDisk(self.path / name),
            Options(),
            clock=ManualClock(NOW),
            background=False,
            replica=self.store,
        )

    @property
    def follower(self) -> Follower:
        assert self.engine.follower is not None
        return self.engine.follower

    def ship(self) -> None:
        self.leader.flush()
        assert self.leader.replica is not None
        self.leader.replica.ship_all()

    def look(self) -> None:
        self.ship()
        self.follower.look()

    def seal(self) -> None:
        """The leader seals, and the state is ready. It is shipped with the next chunk."""
        self.leader.seal()
        self.make_state_ready()

    def make_state_ready(self) -> None:
        assert self.leader.replica is not None
        self.leader.replica.keep_files()

    @property
    def both(self) -> tuple[list[str], list[str]]:
        return texts(self.leader.log("a")), texts(self.engine.log("a"))

    def check(self) -> None:
        leader, follower = self.leader.log("a"), self.engine.log("a")
        assert texts(follower) == texts(leader)
        assert follower.state() == leader.state()
        assert follower.cursors() == leader.cursors()
        assert follower.notes == leader.notes

    def runs(self) -> list[int]:
        return [run.segment for run in self.engine.log("a").book.runs]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.engine.close()
    pair.leader.close()


def change_in_every_way(log: Log) -> None:
    """Delete, hide, amend and append."""
    fill(log, "x", "y", "z", "w", key="k")
    log.delete(seqs=[log.head - 3]).wait()
    log.hide(seqs=[log.head - 2]).wait()
    log.amend(log.head - 1, b"amended").wait()
    log.move_cursor("reader", log.head).wait()
    log.note({"title": log.head}).wait()


def test_a_follower_has_what_was_shipped(pair: Pair) -> None:
    pair.check()
    fill(pair.leader.log("a"), "4")
    pair.follower.look()
    assert texts(pair.engine.log("a")) == ["1", "2", "3"]
    pair.look()
    pair.check()


def test_every_change_is_refused_with_the_leader(pair: Pair) -> None:
    log = pair.engine.log("a")
    for change in (
        lambda: log.append(Batch.of(b"x")),
        lambda: log.delete(seqs=[1]),
        lambda: log.configure(Config(ttl_ms=1)),
        lambda: pair.engine.create("b"),
        lambda: log.drop(),
        lambda: log.move_cursor("c", 1),
    ):
        with pytest.raises(FollowsLeader, match="send changes to the leader"):
            change()
    assert issubclass(FollowsLeader, JournalFailed)
    pair.check()


def test_logs_come_and_go(pair: Pair) -> None:
    created: list[str] = []
    dropped: list[str] = []
    pair.engine.created.append(lambda log: created.append(log.name))
    pair.engine.dropped.append(lambda log: dropped.append(log.name))
    make(pair.leader, "b")
    pair.look()
    assert created == ["b"]
    assert pair.engine.names() == ["a", "b"]
    first = pair.engine.log("b").epoch
    pair.leader.log("b").drop().wait()
    fill(make(pair.leader, "b"), "again")
    pair.look()
    assert dropped == ["b"]
    assert created == ["b", "b"]
    assert pair.engine.log("b").epoch > first
    assert texts(pair.engine.log("b")) == ["again"]
    assert len(pair.engine) == pair.engine.stats().logs == len(pair.leader)


def test_listeners_hear_of_records_and_notes(pair: Pair) -> None:
    heard: list[int] = []
    noted: list[str] = []
    log = pair.engine.log("a")
    log.listen(lambda book: heard.append(book.head))
    pair.engine.noted.append(lambda log: noted.append(log.name))
    fill(pair.leader.log("a"), "4")
    pair.look()
    assert heard[-1] == 4
    assert not noted
    pair.leader.log("a").note({"n": 1}).wait()
    pair.look()
    assert noted == ["a"]


def test_a_follower_reads_sealed_records_from_the_segments_of_the_leader(pair: Pair) -> None:
    change_in_every_way(pair.leader.log("a"))
    pair.look()
    pair.seal()
    pair.look()
    assert len(pair.runs()) == 1
    assert pair.engine.log("a").book.tail is None
    assert pair.follower.stats().reloads == 0
    pair.check()


def test_changes_while_the_leader_seals_are_kept(pair: Pair) -> None:
    """The follower sees them before it hears of the new segment."""
    change_in_every_way(pair.leader.log("a"))
    pair.look()
    pair.leader.seal()
    log = pair.leader.log("a")
    log.hide(seqs=[1]).wait()
    log.delete(seqs=[2]).wait()
    log.amend(3, b"later").wait()
    log.restore(seqs=[log.head - 2]).wait()
    fill(log, "new")
    pair.look()
    assert pair.runs() == []
    pair.make_state_ready()
    pair.look()
    assert pair.follower.stats().reloads == 0
    pair.check()
    assert pair.engine.log("a").book.tail is not None


def test_merged_segments_take_the_place_of_earlier_ones(pair: Pair) -> None:
    log = pair.leader.log("a")
    for _ in range(3):
        change_in_every_way(log)
        pair.look()
        pair.seal()
        pair.look()
    assert len(pair.runs()) == 3
    log.hide(seqs=[4]).wait()
    change_in_every_way(log)
    pair.look()
    pair.seal()
    pair.leader.maintain()
    log.delete(seqs=[5]).wait()
    pair.make_state_ready()
    pair.look()
    assert len(pair.runs()) < 4
    assert pair.follower.stats().reloads == 0
    pair.check()
    assert pair.engine.store.ids() == pair.leader.store.ids()
    assert min(journal_indexes(pair.engine.disk)) == pair.leader.maintenance.manifest.boundary


def test_rounds_that_were_missed_are_adopted_together(pair: Pair) -> None:
    log = pair.leader.log("a")
    for _ in range(6):
        change_in_every_way(log)
        pair.ship()
        pair.seal()
    pair.look()
    pair.check()


def test_evicted_records_stay_away(pair: Pair) -> None:
    log = pair.leader.log("a")
    log.configure(Config(cap_records=4)).wait()
    for _ in range(3):
        fill(log, *"abc")
        pair.look()
        pair.leader.seal()
        fill(log, "d")
        pair.look()
        pair.make_state_ready()
        pair.look()
        pair.check()
    assert pair.follower.stats().reloads == 0


def test_a_chunk_may_end_within_a_write(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipper, "MAX_CHUNK_BYTES", 150)
    monkeypatch.setattr(shipper, "MIN_PIECE_BYTES", 1)
    change_in_every_way(pair.leader.log("a"))
    pair.leader.change_all([Append(pair.leader.log("a"), Batch([b"p" * 90, b"q" * 90]))]).wait()
    pair.look()
    assert pair.follower.stats().chunk > 8
    pair.check()


def test_forks_share_records(pair: Pair) -> None:
    fork = pair.leader.fork("f", pair.leader.log("a"), 2).wait()
    fill(fork, "own")
    pair.look()
    pair.seal()
    fill(fork, "more")
    pair.look()
    assert texts(pair.engine.log("f")) == ["1", "2", "own", "more"]
    assert pair.engine.log("a").forks == 1
    fork.drop().wait()
    pair.look()
    assert pair.engine.log("a").forks == 0


def test_a_state_that_overtakes_the_journal_is_loaded_as_a_whole(pair: Pair) -> None:
    change_in_every_way(pair.leader.log("a"))
    pair.seal()
    fill(pair.leader.log("a"), "after")
    pair.look()
    assert pair.follower.stats().reloads == 1
    pair.check()


def test_a_follower_that_was_away_too_long_loads_the_last_state(pair: Pair) -> None:
    for _ in range(3):
        change_in_every_way(pair.leader.log("a"))
        pair.ship()
        pair.seal()
        pair.ship()
        pair.make_state_ready()
    pair.follower.look()
    assert pair.follower.stats().reloads >= 1
    pair.check()


def test_a_restarted_leader_is_followed(pair: Pair) -> None:
    change_in_every_way(pair.leader.log("a"))
    pair.look()
    log = pair.engine.log("a")
    pair.leader = start(kill(pair.leader), pair.store)
    fill(pair.leader.log("a"), "after the restart")
    pair.look()
    pair.check()
    assert log.book is pair.engine.log("a").book
    assert pair.follower.stats().term == 2


def test_another_leader_is_followed(pair: Pair, tmp_path: Path) -> None:
    """What the first leader had not shipped is lost, and the follower shows that as the new leader does."""
    fill(pair.leader.log("a"), "not shipped")
    kill(pair.leader)
    with served(directory(tmp_path, "other"), pair.store) as other:
        pair.leader = other
        pair.look()
        pair.check()
        fill(other.log("a"), "of the other")
        pair.look()
        pair.check()
        assert pair.engine.log("a").head > 4
        assert pair.engine.log("a").read(3).tombstone is not None


def test_a_follower_starts_again_in_its_directory(pair: Pair) -> None:
    change_in_every_way(pair.leader.log("a"))
    pair.look()
    pair.seal()
    pair.look()
    assert texts(pair.engine.log("a"))
    pair.engine.close()
    fetched = list((pair.path / "follower" / "segments").iterdir())
    fill(pair.leader.log("a"), "meanwhile")
    pair.ship()
    pair.engine = pair.follow()
    pair.check()
    assert list((pair.path / "follower" / "segments").iterdir()) == fetched


def test_a_follower_does_not_use_the_directory_of_another_server(pair: Pair) -> None:
    with pytest.raises(BadConfig, match="choose another directory"):
        Engine.follow(FaultDisk(_data_directory(pair.path)), Options(), background=False, replica=pair.store)


@pytest.mark.parametrize("replica", [None, FaultyStore()])
def test_a_server_that_does_not_follow_refuses_the_directory_of_a_follower(
    pair: Pair, replica: FaultyStore | None
) -> None:
    """The next follower would make the directory again, without what was written to it."""
    pair.engine.close()
    with pytest.raises(BadConfig, match="copy of a replica"):
        Engine.open(FaultDisk(pair.path / "follower"), Options(), background=False, replica=replica)
    pair.engine = pair.follow()
    pair.check()


def _data_directory(path: Path) -> Path:
    (path / "data").mkdir()
    Engine.open(FaultDisk(path / "data"), background=False).close()
    return path / "data"


def test_without_a_leader_there_is_nothing_to_follow(tmp_path: Path) -> None:
    with pytest.raises(NoLeaderYet, match="start one with --replica"):
        Engine.follow(directory(tmp_path, "f"), Options(), background=False, replica=FaultyStore())


def test_the_lag_grows_while_the_store_is_away(tmp_path: Path, pair: Pair) -> None:
    before = pair.follower.lag_ms()
    pair.store.is_away = True
    with pytest.raises(OSError, match="away"):
        pair.follower.look()
    assert pair.follower.lag_ms() > before
    pair.store.is_away = False
    pair.look()
    pair.check()


def test_a_chunk_that_could_not_be_processed_is_processed_later(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    change_in_every_way(pair.leader.log("a"))
    pair.ship()
    pair.seal()
    pair.ship()
    read = pair.store.read

    def fail(name: str) -> bytes | None:
        if name.startswith("checkpoints/"):
            raise OSError("the store is away")
        return read(name)

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(pair.store, "read", fail)
            with pytest.raises(OSError, match="away"):
                pair.follower.look()
    assert pair.runs() == []
    pair.follower.look()
    assert len(pair.runs()) == 1
    pair.check()


def test_a_chunk_that_could_not_be_written_is_read_again(pair: Pair) -> None:
    """The disk of the follower is full for a while."""
    change_in_every_way(pair.leader.log("a"))
    pair.ship()
    disk = pair.engine.disk
    assert isinstance(disk, FaultDisk)
    disk.fail_at(disk.calls_of("write") + 1, errno.ENOSPC, kind="write", short=True)
    with pytest.raises(OSError, match="No space"):
        pair.follower.look()
    disk.heal()
    pair.look()
    assert pair.follower.stats().reloads == 0
    pair.check()


def test_a_change_of_records_whose_segment_was_merged_away_is_not_left_out(pair: Pair) -> None:
    """The follower is paused for a round, after which the replica has neither the segments that it knows nor those
    chunks that precede the round. The chunk with the change is still there."""
    log = pair.leader.log("a")
    for _ in range(4):
        fill(log, "x", "y", key="k")
        pair.look()
        pair.seal()
        pair.look()
    before = pair.leader.store.ids()
    pair.leader.maintain()
    assert pair.leader.store.ids() != before
    pair.ship()
    pair.follower.look()
    log.delete(key="k").wait()
    pair.ship()
    for _ in range(2):
        pair.make_state_ready()
        pair.ship()
    pair.follower.look()
    assert pair.follower.stats().reloads == 1
    pair.check()


def test_a_chunk_that_the_store_has_lost_is_an_error_until_the_next_state(pair: Pair) -> None:
    for text in ("x", "y", "z"):
        fill(pair.leader.log("a"), text)
        pair.ship()
    pair.store.delete(chunk_name(pair.follower.stats().chunk + 2))
    with pytest.raises(OSError, match="the last state needs it"):
        pair.follower.look()
    assert texts(pair.engine.log("a")) == ["1", "2", "3", "x"]
    pair.seal()
    pair.look()
    pair.check()


def test_a_directory_is_not_made_without_a_chunk_that_its_state_needs(pair: Pair) -> None:
    """Also if the chunks are not listed at once, as in a server."""
    pair.leader.seal()
    fill(pair.leader.log("a"), "after the boundary")
    pair.ship()
    pair.make_state_ready()
    pair.ship()
    chain = Chain(pair.store)
    chain.find_end()
    last = chain.read(chain.state)
    assert last is not None
    first = content_of(last, State).first_chunk
    assert first < last.number
    pair.store.delete(chunk_name(first))
    with pytest.raises(ChunksRemoved):
        Mirror(directory(pair.path, "other"), pair.store).begin()
