from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.service import access as access_module
from strandline.service.access import ALL_SCOPES, FULL_ACCESS, SCOPES, Access, BadKeys, Keys


def only(text: str) -> Access:
    (access,) = Keys.parse(text).accesses()
    return access


def test_a_bare_key_may_do_everything_everywhere() -> None:
    found = Keys.parse("secret").find(b"secret")
    assert found is not None
    assert found.scopes == ALL_SCOPES
    assert found.prefixes == ()
    assert all(found.may(scope) for scope in SCOPES)
    assert found.may_touch("anything")


@pytest.mark.parametrize(
    ("text", "scopes"),
    [
        ("k:read", {"read"}),
        ("k:read+write", {"read", "write"}),
        ("k:r", {"read"}),
        ("k:w", {"write"}),
        ("k:d", {"delete"}),
        ("k:a", {"admin"}),
        ("k:rw", {"read", "write"}),
        ("k:rw+del", {"read", "write", "delete"}),
        ("k:r+read", {"read"}),
        ("k:", ALL_SCOPES),
        ("k::", ALL_SCOPES),
    ],
)
def test_scopes_have_names_letters_and_aliases(text: str, scopes: set[str]) -> None:
    assert only(text).scopes == scopes


def test_a_key_may_do_only_what_its_scopes_say() -> None:
    access = only("k:read+delete")
    assert [scope for scope in SCOPES if access.may(scope)] == ["read", "delete"]
    assert not access.may("everything")


def test_prefixes_limit_the_names_and_may_contain_colons() -> None:
    access = only("k:read:tenant42:|shared.")
    assert access.prefixes == ("tenant42:", "shared.")
    assert access.may_touch("tenant42:jobs")
    assert access.may_touch("shared.log")
    assert not access.may_touch("tenant4:jobs")
    assert not access.may_touch("Tenant42:jobs")
    assert not access.may_touch("tenant42")


def test_an_empty_scopes_field_with_prefixes_means_all_scopes() -> None:
    access = only("k::tenant:")
    assert (access.scopes, access.prefixes) == (ALL_SCOPES, ("tenant:",))


@pytest.mark.parametrize(
    "text", ["k:reed", "k:read+", "k:+read", "k:read,j:x", "k:READ", "k:rwd", "k:read write", "k:*"]
)
def test_a_malformed_scope_is_refused(text: str) -> None:
    with pytest.raises(BadKeys, match="unknown scope"):
        Keys.parse(text)


def test_an_error_names_the_entry_and_quotes_nothing() -> None:
    with pytest.raises(BadKeys) as caught:
        Keys.parse("first,hush-1:hush-2:hush-3")
    assert caught.value.entry == 2
    assert str(caught.value).startswith("API key 2: ")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("text", ["k:read:|", "k:read:a||b", "k:read:a|"])
def test_an_empty_prefix_in_a_list_is_refused(text: str) -> None:
    with pytest.raises(BadKeys, match="a prefix is empty"):
        Keys.parse(text)


def test_a_prefix_that_no_name_can_have_is_refused() -> None:
    with pytest.raises(BadKeys, match="unprintable"):
        Keys.parse("k:read:a\nb")


@pytest.mark.parametrize("text", [":read", "a,,b", ",a", "::tenant:"])
def test_a_missing_key_is_refused(text: str) -> None:
    with pytest.raises(BadKeys, match="the key is empty"):
        Keys.parse(text)


def test_a_key_listed_twice_is_refused() -> None:
    with pytest.raises(BadKeys, match="API key 3: the key is listed twice"):
        Keys.parse("a:read,b,a:admin")


def test_a_key_that_cannot_be_presented_is_refused() -> None:
    with pytest.raises(BadKeys, match="space"):
        Keys.parse("a :read")


@pytest.mark.parametrize("text", ["", "  "])
def test_no_text_means_no_keys(text: str) -> None:
    keys = Keys.parse(text)
    assert not keys
    assert keys.find(b"") is None


def test_spaces_around_entries_and_a_comma_at_the_end_are_harmless() -> None:
    keys = Keys.parse(" a:read , b ,")
    assert len(keys) == 2
    assert keys.find(b"a") is not None
    assert keys.find(b"b") is not None


def test_a_token_is_found_as_a_whole_only() -> None:
    keys = Keys.parse("secret:read,other")
    assert keys.find(b"secret") == keys.accesses()[0]
    assert all(keys.find(token) is None for token in (b"", b"secre", b"secrett", b"Secret", b"secret:read"))


def test_every_key_is_compared_also_behind_the_one_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(known: bytes, presented: bytes) -> bool:
        compared.append(known)
        return known == presented

    monkeypatch.setattr(access_module, "compare_digest", compare)
    assert Keys.parse("a,b,c").find(b"a") is not None
    assert compared == [sha256(secret).digest() for secret in (b"a", b"b", b"c")]


def test_nothing_shows_a_secret_or_its_digest() -> None:
    keys = Keys.parse("hush:read:a|b")
    shown = f"{keys!r} {keys.accesses()!r} {keys.accesses()[0]}"
    assert "hush" not in shown
    assert sha256(b"hush").hexdigest()[:12] not in shown


def test_a_handle_stays_the_same_and_differs_between_keys() -> None:
    first, second = Keys.parse("a:read,b").accesses()
    assert first.id == only("a:admin:x").id
    assert first.id != second.id
    assert str(first) == f"{first.id} read any name"


def test_full_access_has_nobody_to_attribute_to() -> None:
    assert FULL_ACCESS.id == ""
    assert FULL_ACCESS.scopes == ALL_SCOPES
    assert FULL_ACCESS.may_touch("anything")


secrets = st.text(st.characters(exclude_characters=":,", exclude_categories=["C", "Z"]), min_size=1, max_size=20)
prefixes = st.lists(st.text("abc:._-", min_size=1, max_size=8), max_size=3)


@given(st.dictionaries(secrets, st.tuples(st.sets(st.sampled_from(SCOPES), min_size=1), prefixes), max_size=5))
def test_what_is_written_down_is_what_is_granted(grants: dict[str, tuple[set[str], list[str]]]) -> None:
    text = ",".join(f"{secret}:{'+'.join(scopes)}:{'|'.join(names)}" for secret, (scopes, names) in grants.items())
    keys = Keys.parse(text)
    assert len(keys) == len(grants)
    for secret, (scopes, names) in grants.items():
        found = keys.find(secret.encode())
        assert found is not None
        assert (found.scopes, found.prefixes) == (scopes, tuple(names))


def test_a_key_can_be_added() -> None:
    keys = Keys.parse("secret:read").with_key("other", Access("pipeline", ALL_SCOPES, ()))
    assert keys.find(b"other") == Access("pipeline", ALL_SCOPES, ())
    found = keys.find(b"secret")
    assert found is not None
    assert found.scopes == {"read"}
