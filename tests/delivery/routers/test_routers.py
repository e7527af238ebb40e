from pathlib import Path

import pytest
from support.manual_loop import house

from strandline.delivery.routers import RouterCycle, RouterDefinition, RouterFanIn, RouterFilter, RouterRepointed
from strandline.delivery.routers.routers import NAME
from strandline.engine.errors import BadRequest, UnknownLog


def test_a_router_that_would_close_a_cycle_is_refused_with_the_way_around_it(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b")
        home.route("b", "c")
        with pytest.raises(RouterCycle) as refused:
            home.route("c", "a")
        assert refused.value.cycle == ["c", "a", "b", "c"]
        assert home.routers.get("c->a") is None


def test_a_destination_has_one_source(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "c")
        with pytest.raises(RouterFanIn) as refused:
            home.route("b", "c")
        assert (refused.value.dest, refused.value.source) == ("c", "a")
        home.route("a", "c", name="again", filter=RouterFilter(key="x"))


def test_a_router_cannot_be_pointed_elsewhere(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b", name="r")
        for source, dest in (("a", "c"), ("c", "b")):
            with pytest.raises(RouterRepointed) as refused:
                home.route(source, dest, name="r")
            assert (refused.value.name, refused.value.source, refused.value.dest) == ("r", "a", "b")


def test_a_router_to_its_own_source_and_one_without_logs_are_refused(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        with pytest.raises(BadRequest):
            home.route("a", "a")
        with pytest.raises(UnknownLog):
            home.routers.put(RouterDefinition(name="r", source="a", dest="nowhere"))
        assert len(home.routers) == 0


def test_a_router_that_is_changed_goes_on_where_it_is(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b")
        home.write("a", "1", key="x")
        home.turn()
        changed = RouterDefinition(name="a->b", source="a", dest="b", filter=RouterFilter(key="x"))
        assert home.routers.put(changed).wait() is False
        assert home.routers.put(changed).wait() is False
        home.write("a", "2")
        home.write("a", "3", key="x")
        home.turn()
        assert home.texts("b") == ["1", "3"]
        assert home.router("a->b").forwarded_total == 2


def test_a_removed_router_stops_at_once_and_leaves_what_it_forwarded(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b")
        home.write("a", "1")
        home.turn()
        home.write("a", "2")
        assert home.routers.remove("a->b").wait() is True
        assert home.routers.remove("a->b").wait() is False
        home.turn()
        assert home.texts("b") == ["1"]
        assert home.log("a").cursors() == {}
        assert len(home.log(NAME).read()) == 0


def test_with_a_log_go_the_routers_that_touch_it(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        for source, dest in (("a", "b"), ("b", "c"), ("b", "d"), ("x", "y")):
            home.route(source, dest)
        assert home.routers.remove_touching(home.log("b")) == ["a->b", "b->c", "b->d"]
        home.log("b").drop().wait()
        home.write("a", "1")
        home.turn()
        assert [router.name for router in home.routers.page()[0]] == ["x->y"]
        assert home.routers.remove_touching(home.log("a")) == []


@pytest.mark.parametrize("gone", ["a", "b"])
def test_a_log_that_is_dropped_without_a_word_takes_its_routers_along(tmp_path: Path, gone: str) -> None:
    with house(tmp_path) as home:
        home.route("a", "b")
        home.write("a", "1")
        home.log(gone).drop().wait()
        home.turn()
        assert len(home.routers) == 0
        assert home.routers.get("a->b") is None


def test_lists_are_in_order_and_come_in_pages(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        for source, dest in (("a", "d"), ("b", "e"), ("a", "c")):
            home.route(source, dest)

        def names(*arguments: object, **query: object) -> tuple[list[str], bool]:
            found, more = home.routers.page(*arguments, **query)  # type: ignore[arg-type]
            return [router.name for router in found], more

        assert names() == (["a->c", "a->d", "b->e"], False)
        assert names(limit=2) == (["a->c", "a->d"], True)
        assert names(after="a->d") == (["b->e"], False)
        assert names("b") == (["b->e"], False)
        assert names(source="a") == (["a->c", "a->d"], False)
        assert names(dest="e") == (["b->e"], False)
        assert names(prefixes=("x", "b", "e")) == (["b->e"], False)
        assert names(prefixes=("x", "b")) == ([], False), "both ends count"


def test_readers_of_a_destination_find_what_was_written_to_the_sources_above_it(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b")
        home.route("b", "c")
        home.write("a", "1")
        home.routers.catch_up(home.log("a"))
        assert home.texts("b") == []
        home.routers.catch_up(home.log("c"))
        assert (home.texts("b"), home.texts("c")) == (["1"], ["1"])
        before = home.frames()
        home.routers.catch_up(home.log("c"))
        home.turn()
        assert home.frames() == before


def test_a_careful_destination_shows_its_copies_when_they_are_durable(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.log("b", durability="fsync")
        home.route("a", "b")
        home.write("a", "1")
        home.turn()
        home.engine.flush()
        assert home.texts("b") == ["1"]


def test_a_very_long_chain_is_caught_up_without_recursion(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        for number in range(1500):
            home.log(f"l{number}")
        for number in range(1499):
            home.routers.put(RouterDefinition(name=f"r{number}", source=f"l{number}", dest=f"l{number + 1}"))
        home.write("l0", "1")
        home.routers.catch_up(home.log("l1499"))
        assert home.texts("l1499") == ["1"]


def test_under_pressure_forwarding_comes_after_everything_else(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b")
        busy = True
        home.routers.demote_while(lambda: busy)
        order: list[str] = []

        class Other:
            def priority(self, now: int) -> int:
                return 0

            def run(self) -> None:
                order.append(f"other sees {home.texts('b')}")

        home.write("a", "1")
        home.hub.submit(Other())
        home.turn()
        assert order == ["other sees []"]
        assert home.texts("b") == ["1"]
        busy = False
        home.write("a", "2")
        home.hub.submit(Other())
        home.turn()
        assert order[1:] == ["other sees ['1', '2']"]
