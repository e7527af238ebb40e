"""The client for threads, made to look like that for event loops: so a test is written once, for both."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any

import strandline.client
from strandline.client import asynchronous, synchronous

#: Does something with a client of either kind: ``run(scenario)``, or ``run(scenario, url=…, patience=…)``.
Run = Callable[..., Any]

_END = object()


class Threaded:
    """Whatever is a coroutine function there is called on another thread here."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        target = self._target
        value = getattr(target, "close" if name == "aclose" else name)
        if not callable(value):
            return wrapped(value)
        twin = getattr(twin_of(type(target)), name, None)

        def call(*arguments: Any, **options: Any) -> Any:
            return wrapped(value(*arguments, **options))

        async def call_elsewhere(*arguments: Any, **options: Any) -> Any:
            return wrapped(await asyncio.to_thread(value, *arguments, **options))

        return call_elsewhere if inspect.iscoroutinefunction(twin) else call

    async def __aenter__(self) -> Threaded:
        self._target.__enter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._target.close()

    def __aiter__(self) -> Threaded:
        return self

    async def __anext__(self) -> Any:
        value = await asyncio.to_thread(next, self._target, _END)
        if value is _END:
            raise StopAsyncIteration
        return value


def wrapped(value: Any) -> Any:
    ours = type(value).__module__.startswith(synchronous.__name__)
    return Threaded(value) if ours or isinstance(value, GeneratorType) else value


def twin_of(kind: type) -> type | None:
    """The class for event loops that a class for threads was made from."""
    if not kind.__module__.startswith(synchronous.__name__):
        return None
    module = importlib.import_module(kind.__module__.replace(synchronous.__name__, asynchronous.__name__))
    twin: type = getattr(module, f"Async{kind.__name__}")
    return twin


def public_classes() -> Iterator[tuple[type, type]]:
    """Each class of the client for event loops, with that for threads."""
    for name in strandline.client.__all__:
        if name.startswith("Async"):
            yield getattr(strandline.client, name), getattr(strandline.client, name.removeprefix("Async"))
