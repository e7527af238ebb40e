"""Signatures that are verified beside the loop: the answer is made on the loop, once, with what is known."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from strandline.delivery.hub import Hub
from strandline.faces.collections.verifying import NOTHING_VERIFIED, Claim, Verified, Verifying
from strandline.faces.turns import Replying
from strandline.faces.web import Later, Reply
from strandline.signing.keys import Signer

SIGNER = Signer("01" * 32)
TRUE = Claim(SIGNER.public, SIGNER.sign(b"this"), b"this")
FALSE = Claim(SIGNER.public, SIGNER.sign(b"that"), b"this")


def busy(threads: int) -> Verifying:
    """On a loop that has verified something in this turn."""
    verifying = Verifying(Hub(lambda: 0), threads)
    assert isinstance(verifying.ahead(lambda: [TRUE], told(TRUE)), Reply)
    return verifying


@pytest.fixture
def run() -> Iterator[Callable[..., Any]]:
    """Have claims verified and an answer made of it, on a loop that ends with the test."""
    loop = asyncio.new_event_loop()

    async def answered(claims: list[Claim], answer: Callable[[Verified], Replying]) -> Any:
        verifying = busy(2)
        try:
            reply = verifying.ahead(lambda: claims, answer)
            assert isinstance(reply, Later)
            return await reply
        finally:
            verifying.close()

    yield lambda claims, answer: loop.run_until_complete(answered(claims, answer))
    loop.close()


def told(*claims: Claim) -> Callable[[Verified], Reply]:
    return lambda verified: Reply(b",".join(b"%d" % verified.holds(claim) for claim in claims))


def test_every_claim_is_told_as_it_is(run: Callable[..., Any]) -> None:
    assert run([TRUE, FALSE], told(TRUE, FALSE)).body == b"1,0"
    assert run([FALSE], told(FALSE)).body == b"0"


def test_a_claim_that_comes_twice_is_one(run: Callable[..., Any]) -> None:
    assert run([TRUE, TRUE], told(TRUE)).body == b"1"


def test_what_nobody_has_verified_is_verified_when_it_is_asked_for(run: Callable[..., Any]) -> None:
    assert NOTHING_VERIFIED.holds(TRUE)
    assert not NOTHING_VERIFIED.holds(FALSE)
    assert run([TRUE], told(FALSE)).body == b"0"


def test_what_is_known_is_not_verified_again() -> None:
    assert Verified({FALSE: True}).holds(FALSE)


def test_without_claims_the_answer_is_made_at_once_and_no_thread_begins() -> None:
    async def asked() -> None:
        before = threading.active_count()
        assert isinstance(busy(2).ahead(list, lambda _: Reply(b"now")), Reply)
        assert threading.active_count() == before

    asyncio.run(asked())


def test_the_first_one_in_every_turn_of_the_loop_is_answered_at_once() -> None:
    async def asked() -> None:
        verifying = Verifying(Hub(lambda: 0), threads=2)
        for _ in range(3):
            first, second = (verifying.ahead(lambda: [TRUE], told(TRUE)) for _ in range(2))
            assert isinstance(first, Reply)
            assert isinstance(second, Later)
            assert (await second).body == first.body == b"1"  # type: ignore[union-attr]
        verifying.close()

    asyncio.run(asked())


def test_the_answer_is_made_on_the_thread_of_the_loop(run: Callable[..., Any]) -> None:
    here = threading.get_ident()
    assert run([TRUE], lambda _: Reply(b"%d" % (threading.get_ident() == here))).body == b"1"


def test_an_answer_that_fails_fails_for_whoever_waits(run: Callable[..., Any]) -> None:
    def fail(_: Verified) -> Reply:
        raise KeyError("gone")

    with pytest.raises(KeyError):
        run([TRUE], fail)


def test_an_answer_that_takes_longer_is_waited_for(run: Callable[..., Any]) -> None:
    def later(_: Verified) -> Later:
        found = Later()
        asyncio.get_running_loop().call_soon(found.settle, Reply(b"later"))
        return found

    async def awaited() -> Reply:
        await asyncio.sleep(0)
        return Reply(b"awaited")

    async def failing() -> Reply:
        raise KeyError("gone")

    assert run([TRUE], later).body == b"later"
    assert run([TRUE], lambda _: awaited()).body == b"awaited"
    with pytest.raises(KeyError):
        run([TRUE], lambda _: failing())


def test_many_at_a_time_get_each_their_own_answer() -> None:
    async def asked() -> list[bytes]:
        verifying = busy(4)
        claims = [TRUE, FALSE] * 50
        answers = [verifying.ahead(partial(list, [claim, TRUE]), told(claim)) for claim in claims]
        try:
            return [(await answer).body for answer in answers if not isinstance(answer, Reply)]
        finally:
            verifying.close()

    assert asyncio.run(asked()) == [b"1", b"0"] * 50
