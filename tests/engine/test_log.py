from pathlib import Path

import pytest
from support.engines import NOW, fill, make, opened, texts

from strandline.engine import Batch, Config, Engine, ManualClock, Producer
from strandline.engine.errors import (
    BadConfig,
    BadRecord,
    BadRequest,
    BatchTooLarge,
    LogFull,
    ProducerFenced,
    ProducerGap,
    RecordTooLarge,
    UnknownLog,
    UnknownSeq,
)
from strandline.engine.testing.fault_disk import FaultDisk


def test_seqs_are_contiguous_and_a_batch_is_one_append(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        one = log.append(Batch([b"1", b"2", b"3"])).wait()
        two = log.append(Batch([b"4"])).wait()
        assert (one.first, one.last, one.count, two.first, two.last) == (1, 3, 3, 4, 4)
        assert [record.seq for record in log.read()] == [1, 2, 3, 4]


def test_time_never_goes_backwards(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        log = make(engine)
        fill(log, "a")
        clock.advance(-5000)
        fill(log, "b")
        clock.advance(6000)
        fill(log, "c")
        assert [record.ts for record in log.read()] == [NOW, NOW, NOW + 1000]


def test_a_record_comes_back_with_everything_it_had(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        log.append(Batch([b"x", b""], ["k", None], [None, "n"], [b"{}", None])).wait()
        for sealed in (False, True):
            if sealed:
                engine.seal()
            first, second = log.read()
            assert (first.key, first.node, first.meta, first.data) == ("k", None, b"{}", b"x")
            assert (second.key, second.node, second.meta, second.data) == (None, "n", None, b"")


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (Batch([]), BadRequest),
        (Batch(["text"]), BadRecord),  # type: ignore[list-item]
        (Batch([b"x", bytearray(b"y")]), BadRecord),  # type: ignore[list-item]
        (Batch([b"x"], keys=["a", "b"]), BadRequest),
        (Batch([b"x"], keys=["\ud800"]), BadRecord),
        (Batch([b"x"], keys=["k" * 1025]), BadRecord),
        (Batch([b"x"], keys=[7]), BadRecord),  # type: ignore[list-item]
        (Batch([b"x"], nodes=["é" * 600]), BadRecord),
        (Batch([b"x"], metas=["{}"]), BadRecord),  # type: ignore[list-item]
        (Batch([b"x", b"y" * 101]), RecordTooLarge),
        (Batch([b"x" * 60], metas=[b"m" * 41]), RecordTooLarge),
    ],
)
def test_a_bad_batch_is_refused_whole_and_changes_nothing(tmp_path: Path, batch: Batch, error: type[Exception]) -> None:
    with opened(tmp_path, max_record_bytes=100) as engine:
        log = make(engine)
        fill(log, "before")
        before = log.state()
        with pytest.raises(error):
            log.append(batch)
        assert log.state() == before
        assert texts(log) == ["before"]


def test_a_repeated_idempotency_key_gives_the_first_answer_until_its_window_is_over(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        log = make(engine, idempotency_window_ms=1000)
        first = log.append(Batch([b"1", b"2"]), idempotency_key="k").wait()
        clock.advance(1000)
        again = log.append(Batch.of(b"other"), idempotency_key="k").wait()
        assert again.deduped
        assert (again.first, again.last, again.ts) == (first.first, first.last, first.ts)
        clock.advance(1)
        assert log.append(Batch.of(b"3"), idempotency_key="k").wait().first == 3
        assert texts(log) == ["1", "2", "3"]


def test_producers_are_deduplicated_fenced_and_kept_in_order(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)

        def send(epoch: int, seq: int) -> tuple[int, bool]:
            done = log.append(Batch.of(b"x"), producer=Producer("p", epoch, seq)).wait()
            return done.first, done.deduped

        with pytest.raises(ProducerGap) as unknown:
            send(0, 1)
        assert (unknown.value.expected, unknown.value.received) == (0, 1)
        assert send(0, 0) == (1, False)
        assert send(0, 1) == (2, False)
        assert send(0, 1) == (2, True)
        with pytest.raises(ProducerGap) as gap:
            send(0, 3)
        assert gap.value.expected == 2
        with pytest.raises(ProducerGap):
            send(1, 1)
        assert send(1, 0) == (3, False)
        with pytest.raises(ProducerFenced) as fenced:
            send(0, 2)
        assert fenced.value.current == 1
        assert log.head == 3


@pytest.mark.parametrize(
    "extras",
    [
        {"idempotency_key": ""},
        {"idempotency_key": "\ud800"},
        {"idempotency_key": 7},
        {"idempotency_key": "k" * 1025},
        {"producer": Producer("", 0, 0)},
        {"producer": Producer("p", -1, 0)},
        {"producer": Producer("p", 0, 1 << 63)},
    ],
)
def test_keys_and_producers_that_make_no_sense_are_refused(tmp_path: Path, extras: dict[str, object]) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        with pytest.raises(BadRequest):
            log.append(Batch.of(b"x"), **extras)  # type: ignore[arg-type]
        assert log.state().head == 0


def test_keys_and_producers_survive_restarts_and_seals(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        log = make(engine)
        log.append(Batch.of(b"1"), idempotency_key="k").wait()
        log.append(Batch.of(b"2"), producer=Producer("p", 4, 0)).wait()
    for sealed in (False, True):
        with opened(tmp_path, clock) as engine:
            log = engine.log("a")
            assert log.append(Batch.of(b"1"), idempotency_key="k").wait().deduped
            assert log.append(Batch.of(b"2"), producer=Producer("p", 4, 0)).wait().deduped
            with pytest.raises(ProducerFenced):
                log.append(Batch.of(b"2"), producer=Producer("p", 3, 0))
            if not sealed:
                engine.seal()
            assert texts(log) == ["1", "2"]


def test_a_full_log_that_rejects_takes_records_again_when_some_are_gone(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, cap_records=3, discard="reject")
        fill(log, "1", "2", "3")
        with pytest.raises(LogFull) as full:
            log.append(Batch.of(b"4"))
        assert (full.value.records, full.value.cap_records, full.value.head) == (3, 3, 3)
        with pytest.raises(BatchTooLarge):
            log.append(Batch([b"x"] * 4))
        log.delete(before=2).wait()
        fill(log, "4")
        assert texts(log) == ["2", "3", "4"]


def test_unflushed_records_count_against_the_cap(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, durability="fsync", cap_bytes=4, discard="reject")
        pending = log.append(Batch.of(b"abc"))
        with pytest.raises(LogFull):
            log.append(Batch.of(b"de"))
        assert pending.wait().first == 1


def test_nobody_sees_a_record_of_an_fsync_log_before_it_is_durable(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, durability="fsync")
        commits = [log.append(Batch.of(b"%d" % number)) for number in range(3)]
        assert (log.head, texts(log)) == (0, [])
        assert not any(commit.done for commit in commits)
        flushes = engine.stats().flushes
        assert commits[1].wait().first == 2
        assert all(commit.done for commit in commits)
        assert engine.stats().flushes == flushes + 1
        assert texts(log) == ["0", "1", "2"]


def test_a_duplicate_of_a_pending_append_waits_with_it(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, durability="fsync")
        first = log.append(Batch.of(b"x"), idempotency_key="k")
        second = log.append(Batch.of(b"x"), idempotency_key="k")
        assert not second.done
        assert second.wait().deduped
        assert first.done


def test_deletes_queue_behind_pending_appends(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, durability="fsync")
        log.append(Batch([b"1", b"2"], keys=["a", "b"]))
        deleted = log.delete(key="a")
        log.append(Batch.of(b"3", key="a"))
        assert deleted.wait().count == 1
        assert texts(log) == ["2", "3"]


@pytest.mark.parametrize("sealed", [False, True])
def test_deletion_is_silent_and_meets_every_condition(tmp_path: Path, sealed: bool) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        log.append(Batch([b"%d" % n for n in range(1, 9)], keys=["a", "b", "ab", "a", None, "b", "abc", "a"])).wait()
        if sealed:
            engine.seal()
        assert log.delete(key="a", before=8).wait().count == 2
        assert texts(log) == ["2", "3", "5", "6", "7", "8"]
        assert log.delete(prefix="a", seqs=[1, 3, 5, 7]).wait().count == 2
        assert texts(log) == ["2", "5", "6", "8"]
        assert log.delete(key="b", prefix="a").wait().count == 0
        assert log.delete(seqs=[2, 99]).wait().count == 1
        assert log.delete(before=6).wait().count == 1
        state = log.state()
        assert (state.count, state.size, state.earliest, state.evict_floor, state.head) == (2, 2, 6, 1, 8)
        page = log.read()
        assert page.tombstone is None
        assert page.seqs == [6, 8]
        fill(log, "9", key="b")
        assert texts(log) == ["6", "8", "9"]


def test_a_delete_must_say_what(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        for wrong in ({}, {"before": -1}, {"seqs": [-1]}):
            with pytest.raises(BadRequest):
                log.delete(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("sealed", [False, True])
def test_hidden_records_come_back_with_restore(tmp_path: Path, sealed: bool) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        log.append(Batch([b"1", b"22", b"333"], keys=["a", "b", "a"])).wait()
        if sealed:
            engine.seal()
        assert log.hide(key="a").wait() == log.restore(key="a").wait()
        log.hide(seqs=[1, 2]).wait()
        state = log.state()
        assert (texts(log), state.count, state.size, state.earliest) == (["333"], 1, 3, 1)
        assert log.hide(seqs=[1]).wait().count == 0
        assert log.restore(before=2).wait().count == 1
        assert texts(log) == ["1", "333"]
        assert log.delete(seqs=[2]).wait().count == 1
        assert log.restore(seqs=[2]).wait().count == 0


@pytest.mark.parametrize("sealed", [False, True])
def test_an_amended_record_keeps_its_place(tmp_path: Path, sealed: bool) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        log.append(Batch([b"1", b"2"], keys=["a", "b"])).wait()
        if sealed:
            engine.seal()
        log.amend(1, b"one").wait()
        log.amend(1, b"eins").wait()
        first, second = log.read()
        assert (first.seq, first.key, first.data, second.data) == (1, "a", b"eins", b"2")
        assert log.state().size == 5
        with pytest.raises(UnknownSeq):
            log.amend(3, b"x")
        log.delete(seqs=[1]).wait()
        with pytest.raises(UnknownSeq):
            log.amend(1, b"x")
        assert log.state().size == 1


def test_a_class_can_be_changed_in_place(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, durability="ephemeral")
        fill(log, "1", "2", "3")
        log.delete(seqs=[2]).wait()
        log.amend(3, b"three").wait()
        log.configure(Config(durability="disk")).wait()
        fill(log, "4")
    with opened(tmp_path) as engine:
        assert texts(engine.log("a")) == ["1", "three", "4"]
        engine.seal()
        assert texts(engine.log("a")) == ["1", "three", "4"]
        engine.log("a").configure(Config(durability="ephemeral")).wait()
        fill(engine.log("a"), "gone")
        engine.seal()
        assert texts(engine.log("a")) == ["1", "three", "4", "gone"]
    with opened(tmp_path) as engine:
        log = engine.log("a")
        assert texts(log) == ["1", "three", "4"]
        gone = log.read(after=4).tombstone
        assert gone is not None
        assert (gone.gap_from, gone.gap_to, gone.reason) == (5, 5, "lost")
        assert log.append(Batch.of(b"6")).wait().first == 6


def test_a_smaller_cap_takes_effect_at_once(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        fill(log, "1", "2", "3")
        assert log.configure(Config(cap_records=1)).wait().count == 1
        assert texts(log) == ["3"]


def test_a_dropped_log_is_gone_and_a_new_one_has_a_higher_epoch(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        old = make(engine)
        fill(old, "1", "2")
        old.drop().wait()
        for use in (old.read, old.state, lambda: old.append(Batch.of(b"x")), lambda: old.delete(before=1), old.drop):
            with pytest.raises(UnknownLog):
                use()
        assert engine.find("a") is None
        new = make(engine)
        assert new.epoch > old.epoch
        fill(new, "new 1", "new 2", "new 3")
        page = new.read(after=2, epoch=old.epoch)
        assert page.tombstone is not None
        assert (page.tombstone.reason, page.tombstone.gap_from, page.tombstone.gap_to) == ("recreated", 1, 3)
        assert page.seqs == [1, 2, 3]


def test_listeners_hear_of_records_and_of_the_end(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        heard: list[tuple[int, bool]] = []
        stop = log.listen(lambda changed: heard.append((changed.head, changed.dropped)))
        fill(log, "1", "2")
        stop()
        fill(log, "3")
        log.listen(lambda changed: heard.append((changed.head, changed.dropped)))
        log.drop().wait()
        assert heard == [(1, False), (2, False), (3, True)]


@pytest.mark.parametrize(
    "wrong",
    [{"ttl_ms": -1}, {"cap_records": 1.5}, {"cap_bytes": True}, {"discard": "new"}, {"durability": "always"}],
)
def test_a_bad_configuration_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadConfig) as caught:
        Config(**wrong)  # type: ignore[arg-type]
    assert caught.value.field in wrong


def test_attributes_are_kept_with_the_log(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        make(engine, attributes={"type": "queue", "priority": 5})
    with opened(tmp_path) as engine:
        assert engine.log("a").config.attributes == {"type": "queue", "priority": 5}


def test_the_next_seq_counts_what_still_waits_for_the_disk(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, durability="fsync")
        assert log.next_seq == 1
        log.append(Batch([b"1", b"2"]))
        assert (log.head, log.next_seq) == (0, 3)
        log.skip(2, "source_trim").wait()
        assert log.next_seq == 5


def test_a_resident_read_is_like_a_read_as_long_as_nothing_must_be_fetched(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine)
        fill(log, "1", "2", "3", key="k")
        assert list(log.read_resident(after=1, limit=1, key="k")) == list(log.read(after=1, limit=1))
        engine.seal()
        fill(log, "4")
        assert log.read_resident() is None
        assert [record.data for record in log.read_resident(after=3)] == [b"4"]
        log.read()
        assert [record.data for record in log.read_resident()] == [b"1", b"2", b"3", b"4"]
        with pytest.raises(BadRequest):
            log.read_resident(after=-1)


def test_a_resident_read_lets_time_take_what_is_too_old(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        log = make(engine, ttl_ms=1000)
        fill(log, "1")
        clock.advance(900)
        fill(log, "2")
        clock.advance(200)
        page = log.read_resident()
        assert page is not None
        assert [record.seq for record in page] == [2]
        engine.seal()
        fill(log, "3")
        clock.advance(900)
        assert log.read_resident(after=2) is None
        assert [record.seq for record in log.read(after=2)] == [3]
        assert log.read_resident(after=2) is not None


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_sync_makes_durable_what_readers_see(tmp_path: Path, durability: str) -> None:
    disk = FaultDisk(tmp_path)
    engine = Engine.open(disk, clock=ManualClock(NOW), background=False)
    log = make(engine, durability=durability)
    fill(log, "1")
    engine.flush()
    assert log.sync().done
    log.append(Batch.of(b"2"))
    head = log.head
    commit = log.sync()
    assert not commit.done
    if durability != "fsync":
        # It holds nobody up.
        assert log.append(Batch.of(b"3")).done
    assert commit.wait() == head
    engine = Engine.open(disk.power_cut(), clock=ManualClock(NOW), background=False)
    assert texts(engine.log("a"))[:head] == ["1", "2"][:head]


def test_an_ephemeral_log_has_nothing_to_sync(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        log = make(engine, durability="ephemeral")
        fill(log, "1")
        assert log.move_cursor("c", 1).done
        assert log.sync().done
        assert log.sync().wait() == 1


def test_room_is_what_a_log_that_rejects_still_takes(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(tmp_path, clock) as engine:
        assert make(engine, "old", cap_records=1).room() is None
        records = make(engine, "records", cap_records=3, discard="reject", durability="fsync", ttl_ms=1000)
        records.append(Batch([b"12", b"34"]))
        assert records.room() == (1, (1 << 63) - 4)
        engine.flush()
        assert records.room() == (1, (1 << 63) - 4)
        clock.advance(2000)
        assert records.room() == (3, 1 << 63)
        size = make(engine, "size", cap_bytes=5, discard="reject")
        fill(size, "123")
        assert size.room() == ((1 << 63) - 1, 2)
        records.drop().wait()
        with pytest.raises(UnknownLog):
            records.room()
