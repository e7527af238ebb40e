"""What a cursor knows, without a server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.client import BadAnswer, Element, Unreadable, WrongAuthor
from strandline.client.elements import CursorState, Opening
from strandline.signing.author_proofs import sign
from strandline.signing.keyring import Encryptor, create
from strandline.signing.keys import KemKey, Signer

ALICE, BOB = Signer("01" * 32), Signer("02" * 32)
KEM = KemKey("41" * 32)
ENCRYPTOR = Encryptor(create(ALICE, [KEM.public], now_s=1).keyring, KEM, [ALICE.public])


def element(ts: int, author: Signer | None = None, **data: Any) -> Element[dict[str, Any]]:
    return Element(ts, data, *(() if author is None else sign(author, "events", data)))


def cursor(items: Any = (), *, verify: Any = False, encryptor: Any = None, kind: Any = Any, **options: Any) -> Any:
    given = {"since": None, "on_element_error": "throw", "persist_encrypted": False, **options}
    return CursorState(Opening("events", verify, encryptor, kind), items, **given)


def test_what_was_seen_is_not_taken_again() -> None:
    state = cursor()
    assert state.is_cold
    assert [each.ts for each in state.take([element(0), element(5)])] == [0, 5]
    assert not state.is_cold
    assert [each.ts for each in state.take([element(0), element(5), element(6)])] == [6]
    assert [each.ts for each in state.items] == [0, 5, 6]
    assert state.checkpoint == 6


def test_a_cursor_goes_on_from_items_or_from_a_time() -> None:
    state = cursor([{"ts": 3, "data": {"n": 1}}, element(4)])
    assert state.checkpoint == 4
    assert cursor([element(4)], since=9).checkpoint == 9
    assert cursor(since=0).is_cold
    assert cursor([element(0)]).is_cold
    assert cursor([element(0)]).take([element(0)]) == []
    for since in (-1, 3):
        with pytest.raises(ValueError, match="checkpoint"):
            cursor([element(4)], since=since)
    with pytest.raises(ValueError, match="before the last"):
        state.move(3)
    state.move(8)
    assert state.take([element(8)]) == []


def test_one_element_that_is_not_accepted_spoils_the_pull_unless_it_is_skipped() -> None:
    told = [element(1, ALICE, n=1), element(2, BOB, n=2), element(3, ALICE, n=3)]
    strict = cursor(verify=ALICE.public)
    with pytest.raises(WrongAuthor) as wrong:
        strict.take(told)
    assert wrong.value.ts == 2
    assert (strict.items, strict.checkpoint, strict.skipped) == ([], 0, 0)
    skipping = cursor(verify=[ALICE.public.upper()], on_element_error="skip")
    assert [each.ts for each in skipping.take([*told, element(4)])] == [1, 3]
    assert (skipping.checkpoint, skipping.skipped) == (4, 2)
    assert [each.ts for each in cursor(verify=True).take(told)] == [1, 2, 3]
    assert [each.ts for each in cursor(verify={ALICE.public, BOB.public}).take(told)] == [1, 2, 3]
    with pytest.raises(ValueError, match="throw"):
        cursor(on_element_error="ignore")


def test_a_signature_is_for_one_document_and_these_data() -> None:
    moved = Element(1, {"n": 1}, *sign(ALICE, "others", {"n": 1}))
    changed = msgspec.structs.replace(element(1, ALICE, n=1), data={"n": 2})
    for each in (moved, changed, element(1)):
        with pytest.raises(WrongAuthor):
            cursor(verify=True).take([each])


def test_what_is_kept_is_what_is_given_or_what_is_stored() -> None:
    sealed = [Element(ts, ENCRYPTOR.encrypt({"n": ts})) for ts in (1, 2)]
    opened = cursor(encryptor=ENCRYPTOR)
    assert [each.data for each in opened.take(sealed)] == [{"n": 1}, {"n": 2}]
    assert [each.data for each in opened.items] == [{"n": 1}, {"n": 2}]
    assert opened.opened_items() == opened.items
    closed = cursor(encryptor=ENCRYPTOR, persist_encrypted=True)
    assert [each.data for each in closed.take(sealed)] == [{"n": 1}, {"n": 2}]
    assert closed.items == sealed
    assert closed.opened_items() == opened.items


def test_what_cannot_be_read_is_kept_encrypted_for_a_key_that_may_come() -> None:
    other = Encryptor(create(ALICE, [KEM.public], now_s=1).keyring, KEM, [ALICE.public])
    sealed = [Element(1, ENCRYPTOR.encrypt({"n": 1})), Element(2, other.encrypt({"n": 2}))]
    with pytest.raises(Unreadable) as unreadable:
        cursor(encryptor=ENCRYPTOR).take(sealed)
    assert unreadable.value.ts == 2
    state = cursor(encryptor=ENCRYPTOR, persist_encrypted=True, on_element_error="skip")
    assert [each.ts for each in state.take(sealed)] == [1]
    assert state.items == sealed
    assert [each.ts for each in state.opened_items()] == [1]
    with pytest.raises(Unreadable):
        cursor(state.items, encryptor=ENCRYPTOR, persist_encrypted=True).opened_items()


def test_data_of_another_type_is_an_error_like_others() -> None:
    with pytest.raises(BadAnswer):
        cursor(kind=dict[str, int]).take([element(1, n="x")])
    assert cursor(kind=dict[str, int], on_element_error="skip").take([element(1, n="x")]) == []


@given(st.lists(st.lists(st.integers(0, 30), max_size=8).map(sorted), max_size=6))
def test_every_element_is_given_once_however_pulls_overlap(pulls: list[list[int]]) -> None:
    state, given_ = cursor(), []
    for pull in pulls:
        given_ += [each.ts for each in state.take([element(ts) for ts in pull])]
    assert given_ == sorted(set(given_)) == [each.ts for each in state.items]
    assert state.checkpoint == max((ts for pull in pulls for ts in pull), default=0)
