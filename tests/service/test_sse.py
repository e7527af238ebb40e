from __future__ import annotations

import pytest

from strandline.service import sse


def test_a_frame_has_an_id_only_if_it_is_given_one() -> None:
    assert sse.frame(b"record", b"{}") == b"event: record\ndata: {}\n\n"
    assert sse.frame(b"record", b"{}", b"7") == b"id: 7\nevent: record\ndata: {}\n\n"


@pytest.mark.parametrize("line_break", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("prefix", [sse.DATA, sse.BARE_DATA])
def test_every_line_of_the_data_is_a_line_of_data(prefix: bytes, line_break: bytes) -> None:
    data = line_break.join([b"a", b"", b"event: b", b""])
    lines = [prefix + line for line in (b"a", b"", b"event: b", b"")]
    assert sse.frame(b"x", data, prefix=prefix) == b"event: x\n" + b"\n".join(lines) + b"\n\n"


def test_a_frame_can_be_a_template() -> None:
    assert sse.frame(b"x", b'{"at":%d}') % 5 == b'event: x\ndata: {"at":5}\n\n'
    assert sse.comment(b"hb %d") % 5 == b": hb 5\n\n"


def test_comments_and_retries() -> None:
    assert (sse.comment(), sse.retry(1000)) == (b": \n\n", b"retry: 1000\n\n")
