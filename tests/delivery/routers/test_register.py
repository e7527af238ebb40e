from pathlib import Path

import pytest
from support.manual_loop import house

from strandline.delivery.routers import RouterDefinition, RouterFilter
from strandline.delivery.routers.routers import NAME


@pytest.mark.parametrize("gone", ["a", "b"])
@pytest.mark.parametrize("again", [False, True])
def test_a_router_whose_log_is_gone_or_is_another_by_now_is_removed(tmp_path: Path, gone: str, again: bool) -> None:
    with house(tmp_path) as home:
        home.route("a", "b")
        home.route("a", "c")
        home.log(gone).drop().wait()
        if again:
            home.log(gone)
    with house(tmp_path) as home:
        assert home.routers.get("a->b") is None
        assert len(home.routers) == (1 if gone == "b" else 0)
        home.engine.flush()
        assert len(home.log(NAME).read()) == len(home.routers)


def test_only_the_last_definition_is_kept(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        for number in range(10):
            home.route("a", "b", filter=RouterFilter(key=str(number)))
        assert len(home.log(NAME).read()) == 1
    with house(tmp_path) as home:
        assert home.router("a->b").filter == RouterFilter(key="9")


def test_definitions_that_were_replaced_right_before_a_crash_are_tidied_up(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.route("a", "b")
        (first,) = home.log(NAME).read()
        home.routers.put(RouterDefinition(name="a->b", source="a", dest="b", stamped=True)).wait()
        # As if the crash had come between the two.
        (second,) = home.log(NAME).read()
        home.log(NAME).delete(seqs=[second.seq]).wait()
        home.write(NAME, first.data.decode(), second.data.decode())
    with house(tmp_path) as home:
        assert home.router("a->b").definition.stamped
        home.engine.flush()
        assert len(home.log(NAME).read()) == 1
