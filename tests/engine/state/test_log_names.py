from hypothesis import given
from hypothesis import strategies as st

from strandline.engine.state.log_names import Names

words = st.text("ab:", min_size=1, max_size=4)


@given(
    st.lists(st.tuples(st.sampled_from(["add", "remove", "list"]), words), max_size=60),
    st.text("ab:", max_size=2),
    st.text("ab:", max_size=3),
    st.none() | st.integers(0, 5),
)
def test_it_lists_what_a_sorted_set_would(steps, prefix, after, limit) -> None:
    names, members = Names(), set()
    for what, word in steps:
        if what == "add" and word not in members:
            names.add(word)
            members.add(word)
        elif what == "remove" and word in members:
            names.remove(word)
            members.discard(word)
        elif what == "list":
            assert names.page("", "", None) == sorted(members)
    expected = [word for word in sorted(members) if word.startswith(prefix) and word > after]
    assert names.page(prefix, after, limit) == expected[:limit]


spans = st.lists(st.text("ab:", max_size=3), max_size=5).map(
    lambda bounds: list(zip(*[iter(sorted(set(bounds)))] * 2, strict=False)) or [("", None)]
)


@given(
    st.lists(st.tuples(st.sampled_from(["add", "remove", "list"]), words), max_size=60),
    spans,
    st.data(),
    st.integers(0, 12),
    st.integers(0, 5),
)
def test_a_slice_is_what_a_sorted_list_of_the_visible_names_has_at_that_place(
    steps, spans, data, position, limit
) -> None:
    names, members = Names(), set()
    for what, word in steps:
        if what == "add" and word not in members:
            names.add(word)
            members.add(word)
        elif what == "remove" and word in members:
            names.remove(word)
            members.discard(word)
        elif what == "list":
            assert names.slice([("", None)], [], 0, 100) == sorted(members)
    hidden = sorted(data.draw(st.sets(st.sampled_from(sorted(members))))) if members else []
    visible = [
        word
        for word in sorted(members - set(hidden))
        if any(low <= word and (high is None or word < high) for low, high in spans)
    ]
    assert names.slice(spans, hidden, position, limit) == visible[position : position + limit]
    assert names.page("", "", None) == sorted(members)


def test_very_many_at_a_time_are_put_in_order_as_well() -> None:
    names = Names(f"{number:04}" for number in range(0, 2000, 2))
    members = {f"{number:04}" for number in range(0, 2000, 2)}
    for number in range(0, 2000, 6):
        names.remove(f"{number:04}")
        members.discard(f"{number:04}")
    assert names.slice([("", None)], [], 0, 3000) == sorted(members)
    for number in range(1, 2000, 4):
        names.add(f"{number:04}")
        members.add(f"{number:04}")
    for number in range(1, 2000, 20):
        names.remove(f"{number:04}")
        members.discard(f"{number:04}")
    assert names.slice([("", None)], [], 100, 50) == sorted(members)[100:150]
    assert names.page("", "", None) == sorted(members)
