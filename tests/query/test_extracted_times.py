"""Times that are read in bulk are those that are read one by one."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.query.extraction import parse_moments
from strandline.query.values import parse_date

digits = st.text("0123456789", min_size=2, max_size=2)
nearly_times = st.builds(
    lambda parts, fraction, end: (
        f"{parts[0]}{parts[1]}-{parts[2]}-{parts[3]}T{parts[4]}:{parts[5]}:{parts[6]}{fraction}{end}"
    ),
    st.lists(digits, min_size=7, max_size=7),
    st.sampled_from(["", ".000", ".999", ".12", ",123"]),
    st.sampled_from(["Z", "z", "+00:00", ""]),
)
times = st.datetimes().map(lambda moment: moment.isoformat(timespec="milliseconds") + "Z")
whole_seconds = st.datetimes().map(lambda moment: moment.isoformat(timespec="seconds") + "Z")


@settings(deadline=None)
@given(st.lists(st.one_of(times, whole_seconds, nearly_times, st.text(max_size=30)), max_size=20))
def test_what_is_known_is_right(texts: list[str]) -> None:
    found, known = parse_moments(pa.array([f'"{text}"' for text in texts], pa.string()))
    for text, milliseconds, is_known in zip(texts, found.tolist(), known.tolist(), strict=True):
        if is_known:
            assert parse_date(text) == milliseconds


@settings(deadline=None)
@given(st.lists(st.one_of(times, whole_seconds), min_size=1, max_size=20))
def test_the_usual_forms_are_known(texts: list[str]) -> None:
    found, known = parse_moments(pa.array([f'"{text}"' for text in texts]))
    assert known.all()
    assert found.tolist() == [parse_date(text) for text in texts]
