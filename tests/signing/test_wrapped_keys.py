from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.signing.keys import KemKey, Signer
from strandline.signing.wrapped_keys import CannotOpen, WrappedKey, derived, is_signed, signed_bytes, unwrap, wrap

VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text())
VECTOR = VECTORS["keyring"]
A = Signer(VECTORS["keys"]["A"]["priv"])
RECIPIENT = KemKey(VECTOR["kemA"]["priv"])
ENTRY = msgspec.convert(VECTOR["entry"], WrappedKey)


def test_a_content_key_is_wrapped_as_elsewhere() -> None:
    ephemeral = KemKey(VECTOR["ephPriv"])
    entry = wrap(
        bytes.fromhex(VECTOR["cek"]),
        RECIPIENT.public,
        A,
        epoch=1,
        now_s=1714000000,
        ephemeral=ephemeral,
        iv=b"\x66" * 12,
    )
    assert msgspec.to_builtins(entry) == VECTOR["entry"]
    assert signed_bytes(entry, 1).decode() == VECTOR["addedSigInput"]
    assert is_signed(entry, 1) is VECTOR["entrySigOk"]
    assert unwrap(entry, RECIPIENT).hex() == VECTOR["unwrapped"]
    secret = ephemeral.shared_with(RECIPIENT.public)
    assert derived(secret, b"starfish-wrap", b"starfish-wrap").hex() == VECTOR["wrapKey"]


def test_only_the_recipient_unwraps() -> None:
    with pytest.raises(CannotOpen):
        unwrap(ENTRY, KemKey.generate())


@pytest.mark.parametrize("change", [{"ct": ""}, {"ct": "AAAA"}, {"ct": "!"}, {"eph_kem": "00" * 32}, {"eph_kem": "x"}])
def test_a_changed_entry_is_not_unwrapped_and_not_signed(change: dict[str, str]) -> None:
    entry = msgspec.structs.replace(ENTRY, **change)
    assert not is_signed(entry, 1)
    with pytest.raises(CannotOpen):
        unwrap(entry, RECIPIENT)


def test_a_content_key_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(CannotOpen, match="length"):
        unwrap(wrap(b"short", RECIPIENT.public, A, epoch=1, now_s=1), RECIPIENT)


@given(st.binary(min_size=32, max_size=32), st.integers(0, 2**31))
def test_what_is_wrapped_is_unwrapped(content_key: bytes, epoch: int) -> None:
    entry = wrap(content_key, RECIPIENT.public, A, epoch=epoch, now_s=1)
    assert is_signed(entry, epoch)
    assert not is_signed(entry, epoch + 1)
    assert unwrap(entry, RECIPIENT) == content_key
