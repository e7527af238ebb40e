"""What routers are after the server has stopped, or died, and comes up again."""

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest
from support.manual_loop import House, house

from strandline.delivery.routers import RouterFilter
from strandline.engine import Config
from strandline.engine.testing.fault_disk import Crashed, FaultDisk

LONG = os.environ.get("STRANDLINE_LONG") == "1"
SEEDS = range(1, 9) if LONG else range(1, 3)
ONLY_X = RouterFilter(prefix="x")


def contents(home: House, *names: str) -> list[list[tuple[int, bytes, bytes | None]]]:
    return [[(record.seq, record.data, record.meta) for record in home.records(name)] for name in names]


def totals(home: House) -> dict[str, int]:
    return {router.name: router.forwarded_total for router in home.routers.page()[0]}


def test_everything_is_as_it_was_and_goes_on(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.write("a", "before")
        home.route("a", "b")
        home.route("a", "f", filter=ONLY_X, keep_keys=False)
        home.route("b", "c", stamped=True)
        for number in range(20):
            home.write("a", str(number), key="x" if number % 2 else "y")
            home.turn()
        home.write("a", "not forwarded yet", key="x")
        before, counted = contents(home, "b", "f", "c"), totals(home)
        definitions = [router.definition for router in home.routers.page()[0]]
    assert counted == {"a->b": 20, "a->f": 10, "b->c": 20}
    with house(tmp_path) as home:
        assert contents(home, "b", "f", "c") == before
        assert totals(home) == counted
        assert [router.definition for router in home.routers.page()[0]] == definitions
        home.turn()
        assert [texts[-1] for texts in map(home.texts, "bfc")] == ["not forwarded yet"] * 3
        assert totals(home) == {"a->b": 21, "a->f": 11, "b->c": 21}
        home.write("a", "more", key="x")
        home.turn()
        assert [home.log(name).head for name in "bfc"] == [22, 12, 22]


def test_what_an_earlier_filter_left_out_stays_out(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b", filter=ONLY_X)
        home.write("a", "left out")
        home.turn()
        home.route("a", "b")
    with house(tmp_path) as home:
        home.turn()
        assert home.texts("b") == []
        assert totals(home) == {"a->b": 0}


def test_what_was_left_out_is_no_loss_when_the_source_loses_it(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b", filter=ONLY_X)
        home.route("a", "all")
        home.write("a", *["left out"] * 10)
        home.turn()
        home.log("a").configure(Config(cap_records=2)).wait()
    with house(tmp_path) as home:
        home.turn()
        assert (home.log("b").head, home.log("b").read().tombstone) == (0, None)
        assert totals(home) == {"a->all": 10, "a->b": 0}
        home.write("a", "x", key="x")
        home.turn()
        assert home.texts("b") == ["x"]
        assert totals(home) == {"a->all": 11, "a->b": 1}


def test_idle_routers_beside_one_that_is_held_up_are_where_they_were(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.log("full", discard="reject", cap_records=1)
        home.route("a", "idle", filter=ONLY_X)
        home.write("a", "1")
        home.turn()
        home.route("a", "full")
        for text in ("2", "3", "4"):
            home.write("a", text)
            home.turn()
        home.log("a").configure(Config(cap_records=2)).wait()
        before = {router.name: (router.position, router.skipped) for router in home.routers.page()[0]}
    assert before == {"a->full": (2, 1), "a->idle": (4, 4)}
    with house(tmp_path) as home:
        assert {router.name: (router.position, router.skipped) for router in home.routers.page()[0]} == before
        home.log("full").delete(before=2)
        home.turn()
        assert (home.texts("full"), home.texts("idle")) == (["3"], [])


def test_a_router_that_is_made_again_is_not_where_the_others_are(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b", filter=ONLY_X)
        home.write("a", "1")
        home.turn()
        home.routers.remove("a->b").wait()
        assert home.log("a").cursors() == {}
        home.write("a", "2")
        home.route("a", "b")
        home.write("a", "3")
    with house(tmp_path) as home:
        home.turn()
        assert (home.texts("b"), totals(home)) == (["3"], {"a->b": 1})


def test_sealing_changes_nothing(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b")
        home.write("a", "1", "2")
        home.turn()
        home.write("a", "3")
        home.engine.seal()
        home.turn()
        home.engine.seal()
        home.write("a", "4")
        home.turn()
    with house(tmp_path) as home:
        home.turn()
        assert home.texts("b") == ["1", "2", "3", "4"]
        assert totals(home) == {"a->b": 4}


def test_a_backlog_that_is_not_in_memory_is_fetched_first(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b")
        # The definitions are read at the start: what shares a block with them is in memory then.
        home.engine.seal()
        home.write("a", *map(str, range(3000)))
        home.engine.seal()
    with house(tmp_path) as home:
        home.routers.catch_up(home.log("b"))
        assert home.texts("b") == []
        home.turn()
        assert home.texts("b") == [str(number) for number in range(3000)]


def test_a_router_far_behind_holds_up_nobody(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.log("slow", discard="reject", cap_records=1)
        home.route("a", "slow")
        home.route("a", "quick")
        home.engine.seal()
        home.write("a", *map(str, range(10)))
        home.turn()
        home.engine.seal()
    with house(tmp_path) as home:
        home.log("slow").delete(before=2)
        home.write("a", "new")
        home.routers.catch_up(home.log("quick"))
        assert home.texts("quick")[-1] == "new"
        assert home.texts("slow") == []
        home.turn()
        assert home.texts("slow") == ["1"]


def test_a_cache_that_keeps_nothing_does_not_keep_routers_from_going_on(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b")
        home.write("a", *map(str, range(3000)))
        home.engine.seal()
    with house(tmp_path, cache_bytes=0) as home:
        home.turn()
        assert home.texts("b") == [str(number) for number in range(3000)]


def test_a_full_disk_loses_nothing_and_is_tried_again(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    with house(disk) as home:
        home.route("a", "b")
        home.write("a", "1")
        disk.fail_from(1, errno.ENOSPC, kind="write")
        home.turn()
        home.loop.advance(5000)
        home.routers.catch_up(home.log("b"))
        assert home.texts("b") == []
        disk.heal()
        home.loop.advance(1000)
        assert home.texts("b") == ["1"]
        assert totals(home) == {"a->b": 1}


def test_a_router_that_cannot_be_written_down_is_not_there(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    with house(disk) as home:
        home.route("a", "b")
        for call in range(1, 5):
            disk.fail_at(disk.calls_of("write") + call, errno.ENOSPC, kind="write")
            with suppress(Exception):
                home.route("a", f"c{call}")
            disk.heal()
        home.write("a", "1")
        home.turn()
        made = {router.name for router in home.routers.page()[0]}
    with house(disk) as home:
        assert {router.name for router in home.routers.page()[0]} == made


# --- crashes -----------------------------------------------------------------------------------------------


class Story:
    """What happens until the crash, and what was promised by then."""

    def __init__(self, source: str, dest: str) -> None:
        self._classes = source, dest
        self.promised: set[str] = set()
        self.removed: set[str] = set()
        self.written: list[str] = []

    def tell(self, home: House) -> None:
        source, dest = self._classes
        home.log("a", durability=source)
        for name in "bf":
            home.log(name, durability=dest)
        self._route(home, "a", "b")
        self._write(home, "0", "1")
        self._route(home, "a", "f", filter=ONLY_X)
        self._route(home, "b", "c", stamped=True)
        self._write(home, "2", "3")
        home.turn()
        self._route(home, "a", "gone")
        self._write(home, "4")
        home.turn()
        home.engine.seal()
        self._write(home, "5", "6", "7")
        home.routers.remove("a->gone").wait()
        self.removed.add("a->gone")
        home.turn()
        self._write(home, "8")
        home.turn()
        home.engine.flush()

    def _route(self, home: House, source: str, dest: str, **how: object) -> None:
        home.route(source, dest, **how)
        self.promised.add(f"{source}->{dest}")

    def _write(self, home: House, *numbers: str) -> None:
        for number in numbers:
            self.written.append(number)
            home.write("a", number, key="xy"[int(number) % 2])

    def check(self, home: House, *, power_cut: bool = False) -> None:
        """Whatever is left of the source is in its destinations, once and in order, and nothing else is."""
        there = {router.name for router in home.routers.page()[0]}
        assert self.promised - {"a->gone"} <= there
        assert not self.removed & there
        home.turn()
        home.engine.flush()
        home.turn()
        left = home.texts("a")
        for name, earliest, wanted in (("b", 0, "01"), ("f", 2, "0"), ("c", 0, "01")):
            router = next((router for router in home.routers.page()[0] if router.dest.name == name), None)
            if router is None:
                continue
            copies = home.texts(name)
            assert copies == sorted(set(copies))
            assert set(copies) <= set(self.written)
            expected = [text for text in left if int(text) >= earliest and str(int(text) % 2) in wanted]
            assert set(expected) <= set(copies) | self._unrouted(name)
            assert router.lag == 0
            # Nobody else writes there: every seq is a copy, or a loss that was passed on; a power cut costs seqs too.
            assert router.forwarded_total == home.log(name).head or power_cut
            assert len(copies) <= router.forwarded_total <= home.log(name).head

    def _unrouted(self, name: str) -> set[str]:
        """Records that may have been written before the router was there."""
        return {"0", "1"} if name == "c" else set()


def story_on(disk: FaultDisk, source: str, dest: str) -> Story:
    story = Story(source, dest)
    home = None
    try:
        home = House(disk)
        story.tell(home)
    except Crashed:
        pass
    else:
        disk.crash_after(disk.calls)
    if home is not None:
        with suppress(Crashed, Exception):
            home.engine.close()
    return story


def crash_points(path: Path, source: str, dest: str) -> range:
    disk = FaultDisk(path)
    story_on(disk, source, dest)
    return range(1, disk.calls + 1, 1 if LONG else 4)


CLASSES = [("fsync", "fsync"), ("disk", "disk"), ("fsync", "disk"), ("disk", "fsync"), ("ephemeral", "disk")]


@pytest.mark.parametrize(("source", "dest"), CLASSES)
def test_a_killed_process_leaves_no_copy_twice_and_none_out(tmp_path: Path, source: str, dest: str) -> None:
    (tmp_path / "count").mkdir()
    for point in crash_points(tmp_path / "count", source, dest):
        path = tmp_path / str(point)
        path.mkdir()
        disk = FaultDisk(path)
        disk.crash_after(point)
        story = story_on(disk, source, dest)
        with house(disk.process_kill()) as home:
            story.check(home)


@pytest.mark.parametrize(("source", "dest"), CLASSES)
def test_a_power_cut_leaves_no_copy_twice_and_none_out(tmp_path: Path, source: str, dest: str) -> None:
    (tmp_path / "count").mkdir()
    for point in crash_points(tmp_path / "count", source, dest):
        for seed in (None, *SEEDS):
            path = tmp_path / f"{point}-{seed}"
            path.mkdir()
            disk = FaultDisk(path)
            disk.crash_after(point)
            story = story_on(disk, source, dest)
            with house(disk.power_cut(seed)) as home:
                story.check(home, power_cut=True)
