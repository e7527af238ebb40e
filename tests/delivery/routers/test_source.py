from pathlib import Path

import pytest
from support.manual_loop import house

from strandline.delivery.routers import RouterFilter, source


def test_what_is_appended_to_the_source_arrives_in_its_order(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b")
        home.write("a", "1", "2")
        home.write("a", "3")
        assert home.texts("b") == []
        home.turn()
        assert home.texts("b") == ["1", "2", "3"]
        home.write("a", "4")
        home.turn()
        assert home.texts("b") == ["1", "2", "3", "4"]
        assert home.router("a->b").forwarded_total == 4
        assert home.routers.lag("a->b") == 0


def test_what_was_there_before_the_router_is_not_forwarded(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.write("a", "before")
        home.route("a", "b")
        home.write("a", "after")
        home.turn()
        assert home.texts("b") == ["after"]
        assert home.router("a->b").forwarded_total == 1


def test_a_burst_of_any_fan_out_is_one_frame(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        for number in range(100):
            home.route("a", f"d{number}")
        home.turn()
        home.write("a", "1", "2", "3")
        before = home.frames()
        home.turn()
        assert home.frames() == before + 1
        assert all(home.texts(f"d{number}") == ["1", "2", "3"] for number in range(100))


def test_filtered_routers_share_the_frame_and_get_only_what_they_want(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "all")
        home.route("a", "exact", filter=RouterFilter(key="x:1"))
        home.route("a", "prefix", filter=RouterFilter(prefix="x:"))
        home.write("a", "1", key="x:1")
        home.write("a", "2", key="x:2")
        home.write("a", "3")
        home.write("a", "4", key="x:1")
        before = home.frames()
        home.turn()
        assert home.frames() == before + 1
        assert (home.texts("all"), home.texts("exact"), home.texts("prefix")) == (
            ["1", "2", "3", "4"],
            ["1", "4"],
            ["1", "2", "4"],
        )
        assert [home.router(f"a->{name}").forwarded_total for name in ("all", "exact", "prefix")] == [4, 2, 3]
        assert home.routers.forwarded_total == 9


def test_keys_and_nodes_are_kept_unless_they_are_to_be_dropped(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "kept")
        home.route("a", "bare", keep_keys=False, keep_nodes=False)
        home.write("a", "1", key="k", node="n", meta=b'{"m":1}')
        home.turn()
        (kept,), (bare,) = home.log("kept").read(), home.log("bare").read()
        assert (kept.key, kept.node, kept.meta) == ("k", "n", b'{"m":1}')
        assert (bare.key, bare.node, bare.meta) == (None, None, b'{"m":1}')


def test_a_chain_converges(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b")
        home.route("b", "c")
        home.route("c", "d")
        home.write("a", "1", "2")
        home.turn()
        assert home.texts("d") == ["1", "2"]


def test_a_large_backlog_takes_several_rounds(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b")
        home.write("a", *map(str, range(2500)))
        before = home.frames()
        home.turn()
        assert home.texts("b") == [str(number) for number in range(2500)]
        assert home.frames() == before + 3


def test_a_huge_fan_out_takes_turns_and_nobody_starves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "ROUND_ROUTERS", 3)
    with house(tmp_path) as home:
        for number in range(10):
            home.route("a", f"d{number}")
        forwarded = home.routers._from[home.log("a").epoch]
        for number in range(4):
            home.write("a", str(number))
            forwarded._goes_on()
        assert all(home.texts(f"d{number}") for number in range(10))
        home.turn()
        assert all(home.texts(f"d{number}") == ["0", "1", "2", "3"] for number in range(10))


def test_an_unexpected_error_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with house(tmp_path) as at:
        at.route("a", "b")
        with monkeypatch.context() as patched:
            patched.setattr(at.engine, "forward", lambda *_: 1 / 0)
            at.write("a", "1")
            at.loop.turn()
            assert len(at.log("b").read()) == 0
        at.loop.advance(60_000)
        assert [record.data for record in at.log("b").read()] == [b"1"], "although nothing else was appended"
