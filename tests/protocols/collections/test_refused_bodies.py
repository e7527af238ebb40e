"""The body of a refused push does not stay in memory until the garbage collector runs, which it seldom does."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from support.collections_in_process import Answered, MakeStand, Stand, opened

from strandline.collections import Collection

#: Larger bodies are read on another thread.
LARGE = "x" * 100_000
PUBLIC = {"read_roles": ("public",), "write_roles": ("public",), "max_body_bytes": 200_000}
SERVED = [Collection(name="regular", storage_path="regular", **PUBLIC), opened(max_body_bytes=200_000)]
REFUSED: dict[str, Callable[[Stand], Answered]] = {
    "another version": lambda server: server.push("regular", {"t": LARGE}),
    "an earlier time": lambda server: server.push("events", {"t": LARGE}, 5),
    "no object": lambda server: server.push("events", [LARGE]),
    "no JSON": lambda server: server.ask("POST", "/push/events", b"{" + LARGE.encode()),
}


@contextmanager
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_a_refused_body_is_freed_with_its_answer(stand: MakeStand, refused: Callable[[Stand], Answered]) -> None:
    server = stand(*SERVED)
    server.pushed("regular", {"n": 1})
    server.push("events", {"n": 1}, 5)
    refused(server)
    with without_collector():
        assert refused(server).status in (400, 409)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        parts = [part for found in gc.garbage for part in gc.get_referents(found)]
        assert not [part for part in parts if isinstance(part, bytes | str) and len(part) >= len(LARGE)]
