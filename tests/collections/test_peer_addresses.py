from __future__ import annotations

import pytest
from support.signed_calls import plain

from strandline.protocols.collections.authorization import address_of


@pytest.mark.parametrize(
    ("forwarded", "hops", "address"),
    [
        ("1.1.1.1", 0, "9.9.9.9"),
        ("1.1.1.1", 1, "1.1.1.1"),
        ("6.6.6.6, 1.1.1.1", 1, "1.1.1.1"),
        ("6.6.6.6, 1.1.1.1, 2.2.2.2", 2, "1.1.1.1"),
        ("1.1.1.1", 2, "9.9.9.9"),
        (" , 1.1.1.1 ,", 1, "1.1.1.1"),
        ("", 1, "9.9.9.9"),
    ],
)
def test_only_what_trusted_proxies_have_written_counts(forwarded: str, hops: int, address: str) -> None:
    assert address_of(plain("GET", "/", headers={"X-Forwarded-For": forwarded}, peer="9.9.9.9"), hops) == address


def test_an_address_may_be_unknown() -> None:
    assert address_of(plain("GET", "/"), 0) == ""
