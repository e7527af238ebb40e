"""Event streams, taken apart."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from strandline.client.server_events import Event, EventParser

STREAM = (
    b": hb 17\r\n\r\nretry: 2000\n\n"
    b'id: a\nevent: record\ndata: {"x":1}\n\n'
    b": again\ndata:one\ndata:  two\ndata:\n\n"
    b"event: control\rdata:\xc3\xa9\r\r"
    b"id: lonely\n\n"
)
EVENTS = [Event("record", '{"x":1}', "a"), Event("message", "one\n two\n"), Event("control", "é")]


def test_events_come_out_of_a_stream() -> None:
    assert EventParser().feed(STREAM) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_it_does_not_matter_in_which_pieces_they_come(cuts: list[int]) -> None:
    parser = EventParser()
    places = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[first:last] for first, last in pairwise(places)]
    assert [event for piece in pieces for event in parser.feed(piece)] == EVENTS


@given(st.integers(0, len(STREAM)))
def test_an_event_that_is_cut_off_never_comes_out(length: int) -> None:
    events = EventParser().feed(STREAM[:length])
    assert events == EVENTS[: len(events)]
