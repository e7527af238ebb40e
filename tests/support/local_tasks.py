"""Work that is done here and now instead of on Spark, with everything in the form in which it travels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec


def work_here(
    function: Callable[[Any], Any], items: Iterable[Any], kind: type[Any], result: type[Any]
) -> Iterator[Any]:
    for item in items:
        there = msgspec.msgpack.decode(msgspec.msgpack.encode(item), type=kind)
        yield msgspec.msgpack.decode(msgspec.msgpack.encode(function(there)), type=result)
