"""Waiting, for handlers: for what was journaled to be durable, and for one's turn when the server is busy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import TypeVar

from strandline.delivery.hub import Hub
from strandline.delivery.pressure import Pressure
from strandline.engine.commit import Commit
from strandline.engine.errors import SealingBehind
from strandline.protocols.http import Later, Reply

T = TypeVar("T")
#: What a handler without a stream gives.
Replying = Reply | Later | Awaitable[Reply]
#: How urgent something is at this moment.
Urgency = Callable[[], int]
#: The milliseconds to wait, by priority and by whether the request is patient.
_Delay = Callable[[int, bool], float]

#: Even a patient request is let in after this time.
MAX_PARKED_SECONDS = 10.0


def after(hub: Hub, commit: Commit[T], make: Callable[[T], Reply]) -> Reply | Later:
    """The reply that is made of the commit's value: now if it is done, else when it is."""
    if commit.done:
        return make(commit.wait())
    later = Later()

    def settle() -> None:
        try:
            reply = make(commit.wait())
        except Exception as error:
            later.fail(error)
        else:
            later.settle(reply)

    hub.on_done(commit, settle)
    return later


class Turns:
    """Raises :class:`~strandline.delivery.pressure.Throttled` when the server is too busy for a request."""

    def __init__(self, pressure: Pressure) -> None:
        self._pressure = pressure

    def take(self, urgency: Urgency, act: Callable[[float], Replying], *, patient: bool = False) -> Replying:
        """Do it now, or after the wait that the pressure on the server asks for; ``act`` is told how long that was.
        One that is patient goes on waiting while it would be refused."""
        return self._take(self._pressure.delay_ms, urgency, act, patient)

    def take_write(self, urgency: Urgency, act: Callable[[float], Replying], *, patient: bool = False) -> Replying:
        """As ``take``, for what writes: it also waits while sealing is behind."""
        delay = self._pressure.write_delay_ms
        if patient:
            # It waits also when it is refused before the pressure was measured again.
            return self._take_later(delay, urgency, act, delay(urgency(), True), True)
        return self._take(delay, urgency, act, False)

    def _take(self, delay: _Delay, urgency: Urgency, act: Callable[[float], Replying], patient: bool) -> Replying:
        if self._pressure.holds_writes:
            delay_ms = delay(urgency(), patient)
            if delay_ms:
                return self._take_later(delay, urgency, act, delay_ms, patient)
        return act(0.0)

    async def _take_later(
        self, delay: _Delay, urgency: Urgency, act: Callable[[float], Replying], delay_ms: float, patient: bool
    ) -> Reply:
        started, pressure = perf_counter(), self._pressure
        while True:
            await asyncio.sleep(delay_ms / 1000)
            waited = perf_counter() - started
            is_patient = patient and waited <= MAX_PARKED_SECONDS
            if is_patient and pressure.shedding:
                delay_ms = delay(urgency(), True)
                if delay_ms:
                    continue
            try:
                return await reply_of(act(waited * 1000))
            except SealingBehind as error:
                # Nothing has been written.
                if not is_patient:
                    raise
                delay_ms = max(delay(urgency(), True), error.retry_after_ms / 10)


async def reply_of(answer: Replying) -> Reply:
    """The reply, once it is there."""
    reply = answer if isinstance(answer, Reply) else await answer
    assert isinstance(reply, Reply)
    return reply
