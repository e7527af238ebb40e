"""Requests to a gate without a connection."""

from __future__ import annotations

from strandline.server.gate import Gate
from strandline.service.http import Call, Later, Reply


def ask_gate(gate: Gate, call: Call) -> Later:
    """The answer to a request: a reply as it is to be sent, or a stream."""
    answered = Later()
    entered = gate.enter(call.head, call.peer)
    if isinstance(entered, Reply):
        answered.settle(entered)
    else:
        gate.answer(entered, call.body, lambda _, answer: answered.settle(answer))
    return answered
