from __future__ import annotations

import json
from base64 import b64decode, b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.signing.keys import BadKey, KemKey, Signer, user_id, verify

VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text())


@pytest.mark.parametrize("key", VECTORS["keys"].values(), ids=VECTORS["keys"].keys())
def test_public_keys_and_names_of_users_follow_from_the_seed(key: dict[str, str]) -> None:
    signer = Signer(key["priv"])
    assert signer.public == key["pub"]
    assert signer.seed == key["priv"]
    if "userId" in key:
        assert signer.user_id == user_id(key["pub"]) == user_id(key["pub"].upper()) == key["userId"]


def test_a_secret_is_shared() -> None:
    vector = VECTORS["keyring"]
    ours, theirs = KemKey(vector["kemA"]["priv"]), KemKey(vector["ephPriv"])
    assert ours.public == vector["kemA"]["pub"]
    assert ours.shared_with(theirs.public).hex() == theirs.shared_with(ours.public).hex() == vector["sharedSecret"]


@given(st.binary(max_size=100), st.data())
def test_a_signature_holds_for_its_message_and_no_other(message: bytes, data: st.DataObject) -> None:
    signer = Signer("05" * 32)
    signature = signer.sign(message)
    assert verify(signer.public, signature, message)
    assert verify(signer.public.upper(), signature, message)
    other = data.draw(st.binary(max_size=100).filter(lambda text: text != message))
    assert not verify(signer.public, signature, other)
    broken = bytearray(b64decode(signature))
    broken[data.draw(st.integers(0, 63))] ^= data.draw(st.integers(1, 255))
    assert not verify(signer.public, b64encode(broken).decode(), message)
    assert not verify(Signer("06" * 32).public, signature, message)


@given(st.text(), st.text(), st.binary())
def test_nonsense_is_no_signature_and_raises_nothing(public: str, signature: str, message: bytes) -> None:
    assert not verify(public, signature, message)
    assert not verify(Signer("05" * 32).public, signature, message)


@pytest.mark.parametrize("text", ["", "00", "zz" * 32, "00" * 33, " " + "0" * 63])
def test_what_is_no_key_is_refused_and_not_repeated(text: str) -> None:
    for make in (Signer, KemKey, user_id, KemKey("01" * 32).shared_with):
        with pytest.raises(BadKey) as refused:
            make(text)
        assert not text or text not in str(refused.value)


def test_a_secret_that_everybody_knows_is_not_shared() -> None:
    with pytest.raises(BadKey, match="cannot be used to share a secret"):
        KemKey.generate().shared_with("00" * 32)


def test_secrets_are_not_shown() -> None:
    assert Signer("05" * 32).seed not in repr(Signer("05" * 32))
    assert KemKey("05" * 32).private not in repr(KemKey("05" * 32))


def test_made_keys_are_all_different() -> None:
    assert len({Signer.generate().seed for _ in range(5)} | {KemKey.generate().private for _ in range(5)}) == 10
