"""What a round does when it is not all just copying: full destinations, losses, cycles, deletions."""

from pathlib import Path

import pytest
from support.manual_loop import House, house

from strandline.delivery.routers import RouterCycle, RouterFilter
from strandline.engine import Config


def full_destination(home: House, **caps: int) -> None:
    home.log("b", discard="reject", **caps)
    home.route("a", "b")


# --- full destinations -------------------------------------------------------------------------------------


def test_a_full_destination_gets_what_fits_and_the_rest_when_there_is_room(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        full_destination(home, cap_records=3)
        home.write("a", "1", "2", "3", "4", "5")
        home.turn()
        assert home.texts("b") == ["1", "2", "3"]
        assert (home.router("a->b").forwarded_total, home.routers.lag("a->b")) == (3, 2)
        home.log("b").delete(before=3)
        home.turn()
        assert home.texts("b") == ["3"]
        home.loop.advance(50)
        assert home.texts("b") == ["3", "4", "5"]
        assert (home.router("a->b").forwarded_total, home.routers.lag("a->b")) == (5, 0)


def test_bytes_count_with_the_meta_that_the_copy_has(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        full_destination(home, cap_bytes=10)
        home.write("a", "1234", meta=b"{}")
        home.write("a", "1234")
        home.write("a", "1")
        home.turn()
        assert home.texts("b") == ["1234", "1234"]


def test_a_stamped_copy_has_to_fit_with_its_stamp(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.log("b", discard="reject", cap_bytes=100)
        home.route("a", "b", stamped=True)
        home.write("a", "1")
        home.turn()
        assert home.texts("b") == []
        home.log("b").configure(Config(discard="reject", cap_bytes=1000)).wait()
        home.loop.advance(50)
        assert home.texts("b") == ["1"]


def test_the_destination_is_asked_ever_more_seldom(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        full_destination(home, cap_records=1)
        home.write("a", "1", "2")
        home.turn()
        router = home.router("a->b")
        delays = []
        for _ in range(7):
            delays.append(router.delay_ms)
            home.loop.advance(1000)
        assert delays[-1] == 1000
        assert home.loop.timers == 1
        home.log("b").delete(before=2)
        home.loop.advance(1000)
        assert home.texts("b") == ["2"]
        home.write("a", "3")
        home.turn()
        home.log("b").delete(before=3)
        home.loop.advance(50)
        assert home.texts("b") == ["3"]


def test_whoever_looks_at_the_destination_makes_it_try_at_once(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        full_destination(home, cap_records=1)
        home.write("a", "1", "2")
        home.turn()
        home.log("b").delete(before=2)
        home.routers.catch_up(home.log("b"))
        assert home.texts("b") == ["2"]
        home.loop.advance(10_000)
        assert (home.texts("b"), home.loop.timers) == (["2"], 0)


def test_a_full_destination_holds_up_nobody_else(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        full_destination(home, cap_records=1)
        home.route("a", "c")
        for number in range(5):
            home.write("a", str(number))
            home.turn()
        assert (home.texts("b"), home.texts("c")) == (["0"], ["0", "1", "2", "3", "4"])


def test_two_routers_into_one_destination_share_its_room(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.log("b", discard="reject", cap_records=3)
        home.route("a", "b", name="one")
        home.route("a", "b", name="two")
        home.write("a", "1", "2")
        home.turn()
        assert sorted(home.texts("b")) == ["1", "1", "2"]
        home.log("b").delete(before=4)
        home.loop.advance(50)
        assert home.texts("b") == ["2"]


def test_what_is_filtered_out_does_not_wait_for_room(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.log("b", discard="reject", cap_records=1)
        router = home.route("a", "b", filter=RouterFilter(key="x"))
        home.write("a", "1", key="x")
        home.write("a", "2", "3", key="y")
        home.write("a", "4", key="x")
        home.write("a", "5", key="y")
        home.turn()
        assert (router.position, router.forwarded_total, home.texts("b")) == (3, 1, ["1"])


def test_a_removed_router_asks_no_more(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        full_destination(home, cap_records=1)
        home.write("a", "1", "2")
        home.turn()
        home.routers.remove("a->b").wait()
        assert home.loop.timers == 0


# --- losses and deletions ----------------------------------------------------------------------------------


def test_what_the_source_loses_before_it_is_forwarded_is_a_loss_in_the_destination(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.log("a", cap_records=2)
        home.route("a", "b")
        home.write("a", "1")
        home.turn()
        for number in range(2, 7):
            home.write("a", str(number))
        home.turn()
        page = home.log("b").read(after=1)
        assert page.tombstone is not None
        assert (page.tombstone.reason, page.tombstone.gap_from, page.tombstone.gap_to) == ("source_trim", 2, 4)
        assert list(zip(page.seqs, page.data, strict=True)) == [(5, b"5"), (6, b"6")]
        assert home.router("a->b").forwarded_total == 6


def test_a_loss_goes_on_down_a_chain(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.log("a", cap_records=1)
        home.route("a", "b")
        home.route("b", "c")
        home.write("a", "1")
        home.write("a", "2")
        home.turn()
        page = home.log("c").read()
        assert page.tombstone is not None
        assert (page.tombstone.reason, page.tombstone.gap_to, page.data) == ("source_trim", 1, [b"2"])


def test_a_loss_needs_no_room(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.log("a", cap_records=1)
        full_destination(home, cap_records=1)
        home.write("a", "1")
        home.turn()
        home.write("a", "2")
        home.write("a", "3")
        home.turn()
        router = home.router("a->b")
        assert (router.position, router.forwarded_total, home.log("b").head) == (2, 2, 2)
        home.log("b").delete(before=3)
        home.loop.advance(50)
        assert (router.position, router.forwarded_total, home.texts("b")) == (3, 3, ["3"])


def test_what_was_deleted_before_it_is_forwarded_leaves_no_trace(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b")
        home.route("a", "s", stamped=True)
        home.write("a", "1", "2", "3", "4")
        home.log("a").delete(seqs=[2, 4])
        home.turn()
        for name in ("b", "s"):
            page = home.log(name).read()
            assert (page.tombstone, page.seqs, page.data) == (None, [1, 2], [b"1", b"3"])
            assert home.router(f"a->{name}").forwarded_total == 2
            assert home.routers.lag(f"a->{name}") == 0


def test_routers_that_have_nothing_to_forward_share_one_cursor(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        routers = [home.route("a", f"d{number}", filter=RouterFilter(key=str(number))) for number in range(10)]
        home.write("a", "5", key="5")
        before = home.frames()
        home.turn()
        assert home.frames() == before + 1
        assert [router.forwarded_total for router in routers] == [int(number == 5) for number in range(10)]
        assert {router.position for router in routers} == {1}
        cursors = home.log("a").cursors()
        assert [cursors[router.position_cursor].seq for router in routers] == [int(number == 5) for number in range(10)]
        assert cursors["routers"].seq == 1


# --- cycles ------------------------------------------------------------------------------------------------


def test_a_record_stops_going_around_after_eight_hops(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b")
        home.route("b", "a", allow_cycle=True)
        home.write("a", "1")
        home.turn()
        assert (len(home.texts("a")), len(home.texts("b"))) == (5, 4)
        home.write("b", "2")
        home.turn()
        assert (home.texts("a").count("2"), home.texts("b").count("2")) == (4, 5)
        assert home.router("a->b").forwarded_total == 8
        assert home.router("b->a").forwarded_total == 8


def test_hops_of_records_that_everybody_passed_are_forgotten(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b")
        home.route("b", "c")
        home.route("c", "a", allow_cycle=True)
        for number in range(20):
            home.write("a", str(number))
            home.turn()
        hops = home.routers._shared.hops
        assert set(hops) == {home.log(name).epoch for name in "abc"}
        assert not any(map(len, hops.values()))


def test_what_leaves_a_cycle_is_not_counted(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b")
        home.route("b", "a", allow_cycle=True)
        home.route("b", "c")
        home.write("a", "1")
        home.turn()
        assert len(home.texts("c")) == 4
        home.routers.remove("b->a").wait()
        assert not home.routers._shared.hops
        home.write("a", "2")
        home.turn()
        assert home.texts("c").count("2") == 1


def test_a_filtered_stamped_cycle_with_a_full_log_on_it_ends_too(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.log("b", discard="reject", cap_records=3)
        home.route("a", "b", filter=RouterFilter(prefix="x"), stamped=True)
        home.route("b", "a", allow_cycle=True, stamped=True)
        home.write("a", "1", "2", key="x")
        for _ in range(10):
            home.turn()
            home.log("b").delete(before=home.log("b").head + 1)
            home.loop.advance(1000)
        assert home.routers.lag("a->b") == home.routers.lag("b->a") == 0
        assert home.router("a->b").forwarded_total + home.router("b->a").forwarded_total == 16


def test_two_routers_between_the_same_logs_of_a_cycle_end_as_well(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b", name="one")
        home.route("a", "b", name="two")
        home.route("b", "a", allow_cycle=True)
        home.write("a", "1")
        home.turn()
        # Every way from a to b doubles it, and there are four of them in eight hops.
        assert len(home.texts("b")) == 2 + 4 + 8 + 16


def test_catching_up_on_a_cycle_ends(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b")
        home.route("b", "a", allow_cycle=True)
        home.write("a", "1")
        home.routers.catch_up(home.log("b"))
        assert "1" in home.texts("b")


def test_routers_on_a_cycle_can_be_put_again_but_not_without_the_permission(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b")
        home.route("b", "a", allow_cycle=True)
        home.route("a", "b", keep_keys=False)
        home.route("b", "a", allow_cycle=True, keep_keys=False)
        with pytest.raises(RouterCycle):
            home.route("b", "a")
        with pytest.raises(RouterCycle):
            home.route("a", "b", name="another")


# --- spared destinations -----------------------------------------------------------------------------------


def test_a_spared_destination_gets_nothing_until_it_is_spared_no_more(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b")
        home.route("a", "c")
        spared = {"b"}
        home.routers.spare(lambda log: log.name in spared)
        home.write("a", "1", "2")
        home.turn()
        assert (home.texts("b"), home.texts("c")) == ([], ["1", "2"])
        assert (home.routers.lag("a->b"), home.routers.lag("a->c")) == (2, 0)
        spared.clear()
        home.loop.advance(50)
        assert home.texts("b") == ["1", "2"]
        assert (home.router("a->b").forwarded_total, home.routers.lag("a->b")) == (2, 0)


def test_losses_are_not_passed_on_to_a_spared_destination(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.log("a", cap_records=1)
        home.route("a", "b")
        home.routers.spare(lambda log: log.name == "b")
        home.write("a", "1", "2", "3")
        home.loop.advance(5000)
        assert home.log("b").next_seq == 1
