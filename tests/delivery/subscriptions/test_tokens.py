from __future__ import annotations

import pytest

from strandline.delivery.subscriptions.errors import BadToken, TokenExpired
from strandline.delivery.subscriptions.webhook_signatures import TOKEN_MS, Tokens

NOW = 1_700_000_000_000


def test_a_token_tells_which_wake_it_was_given_out_for() -> None:
    tokens = Tokens(bytes(32))
    assert tokens.check(tokens.issue("sub", 7, "w_1", NOW), "sub", NOW) == (7, "w_1")


def test_a_token_of_another_subscription_or_server_is_not_valid() -> None:
    token = Tokens(bytes(32)).issue("sub", 7, "w_1", NOW)
    with pytest.raises(BadToken):
        Tokens(bytes(32)).check(token, "other", NOW)
    with pytest.raises(BadToken):
        Tokens(b"x" * 32).check(token, "sub", NOW)


def test_a_token_expires() -> None:
    tokens = Tokens(bytes(32))
    token = tokens.issue("sub", 7, "w_1", NOW)
    tokens.check(token, "sub", NOW + TOKEN_MS)
    with pytest.raises(TokenExpired):
        tokens.check(token, "sub", NOW + TOKEN_MS + 1)


@pytest.mark.parametrize("token", ["", ".", "a", "a.b", "ä.ö", "e30.e30", "." * 5])
def test_nonsense_is_not_valid(token: str) -> None:
    with pytest.raises(BadToken):
        Tokens(bytes(32)).check(token, "sub", NOW)


def test_no_character_can_be_changed() -> None:
    tokens = Tokens(bytes(32))
    token = tokens.issue("sub", 7, "w_1", NOW)
    for at in range(len(token)):
        changed = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]
        with pytest.raises(BadToken):
            tokens.check(changed, "sub", NOW)
