"""Which coding a client wants."""

from __future__ import annotations

import pytest

from strandline.service.content_coding import MAX_REMEMBERED_BYTES, accepted_coding
from strandline.service.http import Head

OFFERED = (b"zstd", b"br", b"gzip")


def chosen(accept: bytes | None) -> bytes | None:
    return accepted_coding(Head("GET", "/", "", {} if accept is None else {b"accept-encoding": accept}), OFFERED)


@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        (None, None),
        (b"", None),
        (b"identity", None),
        (b"deflate", None),
        (b"gzip", b"gzip"),
        (b"GZip", b"gzip"),
        (b"gzip, deflate, br, zstd", b"zstd"),
        (b"gzip, deflate, br", b"br"),
        (b"gzip;q=1.0, br;q=0.9, zstd;q=0.8", b"gzip"),
        (b"gzip ; q=0.5 , br ; q=0.5", b"br"),
        (b"gzip;q=0", None),
        (b"gzip;q=0.000", None),
        (b"gzip;q=0, br", b"br"),
        (b"zstd;q=0, *", b"br"),
        (b"*", b"zstd"),
        (b"*;q=0", None),
        (b"*;q=0.1, gzip;q=0.2", b"gzip"),
        (b"*;q=0, gzip", b"gzip"),
        (b"identity, gzip;q=0.5", None),
        (b"identity;q=0.5, gzip", b"gzip"),
        (b"identity;q=0.5, gzip;q=0.5", b"gzip"),
        (b"gzip;q=x", None),
        (b"gzip;q=-1", None),
        (b"gzip;q=nan", None),
        (b"gzip;q=2, br;q=0.1", b"br"),
        (b"gzip;level=3;q=0.1, br;q=0.2", b"br"),
        (b",,;q=1,gzip", b"gzip"),
        (b"x-gzip-like", None),
    ],
)
def test_the_highest_q_value_wins_and_then_the_order_of_the_server(accept: bytes | None, coding: bytes | None) -> None:
    assert chosen(accept) == coding


def test_long_headers_are_understood_and_not_remembered() -> None:
    accept = b", ".join([b"x%d" % number for number in range(MAX_REMEMBERED_BYTES)]) + b", gzip"
    assert chosen(accept) == b"gzip"


def test_only_what_is_offered_is_chosen() -> None:
    head = Head("GET", "/", "", {b"accept-encoding": b"zstd, gzip;q=0.1"})
    assert accepted_coding(head, (b"gzip",)) == b"gzip"
    assert accepted_coding(head, ()) is None
