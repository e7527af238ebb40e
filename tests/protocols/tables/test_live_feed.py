"""Two logs told as one: laws that hold however the pages of either are cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strandline.protocols.tables.live_feed import MergedCursor, Noted, ShownChange, Stretch, merge
from strandline.protocols.tables.records import RenderedRow


@st.composite
def stories(draw: st.DrawFn) -> tuple[list[RenderedRow], list[Noted]]:
    """Rows, and changes that were made to them, with times that never go backwards."""
    rows: list[RenderedRow] = []
    changes: list[Noted] = []
    ts = 0
    for is_change in draw(st.lists(st.booleans(), max_size=40)):
        ts += draw(st.integers(0, 2))
        if is_change and rows:
            about = draw(st.sampled_from(rows)).seq
            changes.append(Noted(len(changes) + 1, ts, ShownChange(op="update", seq=about)))
        else:
            rows.append(RenderedRow(len(rows) + 1, ts, "me", b"{"))
    return rows, changes


def stretch(items: list, after: int, page: int) -> Stretch:  # type: ignore[type-arg]
    rest = items[after : after + page]
    through = rest[-1].seq if rest else after
    return Stretch(rest, through, through == len(items))


@given(stories(), st.integers(1, 5), st.integers(1, 5))
def test_everything_is_told_once_in_order_and_no_change_before_its_row(
    story: tuple[list[RenderedRow], list[Noted]], row_page: int, change_page: int
) -> None:
    rows, changes = story
    at, told = MergedCursor(), []
    for _ in range(len(rows) + len(changes) + 1):
        more, behind = merge(at, stretch(rows, at.rows, row_page), stretch(changes, at.changes, change_page))
        told += more
        if behind == at:
            break
        at = behind
    assert at == MergedCursor(len(rows), len(changes))
    items = [item for _, item in told]
    assert [item for item in items if isinstance(item, RenderedRow)] == rows
    assert [item for item in items if isinstance(item, Noted)] == changes
    assert [item.ts for item in items] == sorted(item.ts for item in items)
    seen = 0
    for cursor, item in told:
        if isinstance(item, RenderedRow):
            seen = item.seq
        else:
            assert item.change.seq is not None
            assert item.change.seq <= seen
        assert cursor.rows == seen


@given(stories(), st.integers(1, 4), st.data())
def test_going_on_from_any_cursor_tells_the_rest(
    story: tuple[list[RenderedRow], list[Noted]], page: int, data: st.DataObject
) -> None:
    rows, changes = story
    whole, _ = merge(MergedCursor(), stretch(rows, 0, 100), stretch(changes, 0, 100))
    cut = data.draw(st.integers(0, len(whole)))
    at = whole[cut - 1][0] if cut else MergedCursor()
    rest = []
    while True:
        more, behind = merge(at, stretch(rows, at.rows, page), stretch(changes, at.changes, page))
        rest += more
        if behind == at:
            break
        at = behind
    assert [item for _, item in rest] == [item for _, item in whole[cut:]]


def test_a_page_without_anything_visible_holds_the_other_log_back() -> None:
    changes = [Noted(1, 5, ShownChange(op="update", seq=9))]
    told, behind = merge(MergedCursor(), Stretch([], 8, False), Stretch(changes, 1, True))
    assert told == []
    assert behind == MergedCursor(8, 0)


def test_a_cursor_is_two_numbers_and_a_dot() -> None:
    assert MergedCursor.parse("12.3") == MergedCursor(12, 3)
    assert str(MergedCursor(12, 3)) == "12.3"
    for text in ("", "12", "12.", ".3", "a.1", "1.-1", "1.2.3", "٣.1", "9" * 19 + ".1"):
        assert MergedCursor.parse(text) is None, text
