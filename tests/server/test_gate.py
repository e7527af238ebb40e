"""Every request that reaches a handler gets an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.gate_calls import ask_gate

from strandline.server.gate import Gate, Status
from strandline.service.http import Call, Head, Reply, Route
from strandline.service.limits import Limits
from strandline.service.workers import Workers


def handle(call: Call) -> Reply:
    raise ValueError("the handler failed")


async def handle_later(call: Call) -> Reply:
    raise ValueError("the handler failed")


def errors(error: Exception) -> Reply | None:
    raise TypeError("no words for this error")


@pytest.mark.parametrize("handler", [handle, handle_later])
def test_an_error_without_a_reply_is_an_internal_error(
    handler: Callable[[Call], Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        route = Route(method="GET", path="/", handler=handler, errors=errors)
        gate = Gate(
            [route], keys=None, limits=Limits(), status=Status(ready=True), workers=Workers(), max_body_bytes=1024
        )
        answer = await asyncio.wait_for(_answer(gate), 10)
        assert (answer.status, b'"internal"' in answer.body) == (500, True)

    asyncio.run(main())
    assert "ValueError: the handler failed" in caplog.text
    assert "TypeError: no words for this error" in caplog.text


async def _answer(gate: Gate) -> Reply:
    answer = await ask_gate(gate, Call(Head("GET", "/", "", {}), b"", 0.0))
    assert isinstance(answer, Reply)
    return answer


def test_requests_in_a_row_are_those_of_one_connection() -> None:
    gate = Gate([], keys=None, limits=Limits(), status=Status(ready=True), workers=Workers(), max_body_bytes=1024)
    counted = []
    for connection in (1, 1, 1, 2, 1, 0, 0, 1, 1):
        gate.enter(Head("GET", "/", "", {}), "", connection)
        counted.append(gate.in_a_row)
    # The connections of the lane for ASGI are not known.
    assert counted == [0, 1, 2, 0, 0, 0, 0, 0, 1]
    assert gate.entered == 9
