"""JSON of any shape, now and then with the keys that a profile looks at."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT
    | st.sampled_from(["", " ", "0", "-1", "12.5", "1e400", "1_0", "²", "true", "ERROR", "9" * 320])
)


def documents(names: list[str]) -> st.SearchStrategy[Any]:
    """Any JSON value, with ``names`` as likely keys at every level."""
    keys = st.sampled_from(names) | _TEXT
    nested = st.recursive(
        _SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5), max_leaves=12
    )
    return nested | st.dictionaries(keys, nested, max_size=12)
