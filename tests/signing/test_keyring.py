from __future__ import annotations

import json
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starfish_keyring import Keyring as PublishedKeyring
from starfish_keyring import create_keyring, create_keyring_encryptor

from strandline.signing.keyring import BadKeyring, Encryptor, Keyring, add_recipient, create, rotate
from strandline.signing.keys import BadKey, KemKey, Signer
from strandline.signing.wrapped_keys import CannotOpen

VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text())
VECTOR = VECTORS["keyring"]
A, B = (Signer(VECTORS["keys"][name]["priv"]) for name in "AB")
OURS, THEIRS = KemKey(VECTOR["kemA"]["priv"]), KemKey("44" * 32)
NOW = 1714000000
PUBLISHED = Keyring.parse({"currentEpoch": 1, "epochs": {"1": {"wrappedKeys": [VECTOR["entry"]]}}, "v": 1})


def test_a_keyring_made_elsewhere_opens_what_was_encrypted_there() -> None:
    encryptor = Encryptor(PUBLISHED, OURS, [A.public])
    assert encryptor.content_key.hex() == VECTOR["cek"] == VECTOR["unwrapped"]
    assert encryptor.decrypt(VECTOR["element"]) == VECTOR["decrypted"]
    assert encryptor.decrypt({"_encrypted": VECTOR["element"]["_encrypted"]}) == VECTOR["decrypted"]
    assert encryptor.open_bytes(bytes.fromhex(VECTOR["blobHex"]), "blobs/x") == VECTOR["blobOpen"].encode()


documents = st.dictionaries(
    st.text(), st.recursive(st.none() | st.text() | st.integers(), st.lists, max_leaves=4), max_size=4
)


@given(documents)
def test_what_is_encrypted_here_is_opened_elsewhere_and_the_other_way_round(document: dict[str, Any]) -> None:
    ours = Encryptor(PUBLISHED, OURS, {A.public})
    published = PublishedKeyring.from_dict(PUBLISHED.document())
    theirs = create_keyring_encryptor(published, OURS.public, OURS.private, [A.public])
    assert theirs.decrypt(ours.encrypt(document)) == document
    assert ours.decrypt(theirs.encrypt(document)) == document
    assert ours.open_bytes(theirs.seal_bytes(b"data", "at"), "at") == b"data"
    assert theirs.open_bytes(ours.seal_bytes(b"data", "at"), "at") == b"data"


def test_keyrings_are_read_in_both_directions() -> None:
    made, content_key = create(A, [OURS.public, THEIRS.public], now_s=NOW)
    theirs = create_keyring_encryptor(
        PublishedKeyring.from_dict(made.document()), THEIRS.public, THEIRS.private, [A.public]
    )
    assert Encryptor(made, OURS, [A.public]).decrypt(theirs.encrypt({"n": 1})) == {"n": 1}
    published, _ = create_keyring(A.seed, A.public, [OURS.public], cek=content_key, added_at=NOW)
    encryptor = Encryptor(json.loads(json.dumps(published.to_dict())), OURS, [A.public])
    assert encryptor.decrypt(theirs.encrypt({"n": 2})) == {"n": 2}
    assert Keyring.parse(published.to_dict()).document() == published.to_dict()


def test_who_is_added_can_read_the_epoch_and_who_is_left_out_not_the_next() -> None:
    keyring, content_key = create(A, [OURS.public], now_s=NOW)
    first = Encryptor(keyring, OURS, [A.public]).encrypt({"n": 1})
    with pytest.raises(BadKeyring, match="no usable key"):
        Encryptor(keyring, THEIRS, [A.public])
    keyring = add_recipient(keyring, A, content_key, THEIRS.public, now_s=NOW)
    assert Encryptor(keyring, THEIRS, [A.public]).decrypt(first) == {"n": 1}
    with pytest.raises(BadKeyring, match="already"):
        add_recipient(keyring, A, content_key, THEIRS.public, now_s=NOW)
    assert keyring.recipients() == [OURS.public, THEIRS.public]

    keyring, _ = rotate(keyring, A, [OURS.public], now_s=NOW)
    ours = Encryptor(keyring, OURS, [A.public], min_epoch=2)
    second = ours.encrypt({"n": 2})
    assert second["_epoch"] == 2
    assert [ours.decrypt(first), ours.decrypt(second)] == [{"n": 1}, {"n": 2}]
    with pytest.raises(BadKeyring, match="no usable key of epoch 2"):
        Encryptor(keyring, THEIRS, [A.public])


def test_who_joined_later_cannot_read_what_was_before() -> None:
    keyring, _ = create(A, [OURS.public], now_s=NOW)
    first = Encryptor(keyring, OURS, [A.public]).encrypt({"n": 1})
    keyring, _ = rotate(keyring, A, [OURS.public, THEIRS.public], now_s=NOW)
    with pytest.raises(CannotOpen, match="no key for epoch 1"):
        Encryptor(keyring, THEIRS, [A.public]).decrypt(first)


def with_entries(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"v": 1, "currentEpoch": 1, "epochs": {"1": {"wrappedKeys": list(entries), "createdAt": NOW}}}


@pytest.mark.parametrize(
    "document",
    [
        with_entries(),
        with_entries(VECTOR["entry"], VECTOR["entry"]),
        with_entries({**VECTOR["entry"], "addedAt": NOW + 1}),
        with_entries({**VECTOR["entry"], "addedSig": "AAAA"}),
        with_entries({**VECTOR["entry"], "ct": "AAAA"}),
        with_entries({**VECTOR["entry"], "addedBy": B.public}),
        {**with_entries(VECTOR["entry"]), "currentEpoch": 2},
    ],
)
def test_entries_that_are_not_what_the_adder_signed_are_not_used(document: dict[str, Any]) -> None:
    with pytest.raises(BadKeyring, match="no usable key"):
        Encryptor(document, OURS, [A.public, B.public])


def test_an_entry_signed_for_another_epoch_is_not_used() -> None:
    document = {"currentEpoch": 2, "epochs": {"2": {"wrappedKeys": [VECTOR["entry"]]}}}
    with pytest.raises(BadKeyring, match="no usable key"):
        Encryptor(document, OURS, [A.public])


def test_a_keyring_is_trusted_for_what_somebody_trusted_has_signed() -> None:
    with pytest.raises(BadKeyring, match="whose entries"):
        Encryptor(PUBLISHED, OURS, [])
    with pytest.raises(BadKeyring, match="whose entries"):
        Encryptor(PUBLISHED, OURS, A.public)
    with pytest.raises(BadKeyring, match="no usable key"):
        Encryptor(PUBLISHED, OURS, [B.public])
    with pytest.raises(BadKeyring, match="expected 2 or later"):
        Encryptor(PUBLISHED, OURS, [A.public], min_epoch=2)


@pytest.mark.parametrize(
    "document",
    [
        None,
        {},
        {"currentEpoch": "1", "epochs": {}},
        {"currentEpoch": 1, "epochs": {"x": {}}},
        {"currentEpoch": 1, "epochs": {"1": {"wrappedKeys": [{}]}}},
    ],
)
def test_what_is_no_keyring_is_refused(document: Any) -> None:
    with pytest.raises(BadKeyring, match="invalid keyring"):
        Keyring.parse(document)


@given(st.data())
def test_a_changed_byte_is_never_opened(data: st.DataObject) -> None:
    encryptor = Encryptor(PUBLISHED, OURS, [A.public])
    text = bytearray(b64decode(VECTOR["element"]["_encrypted"]))
    text[data.draw(st.integers(0, len(text) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CannotOpen):
        encryptor.decrypt({"_encrypted": b64encode(text).decode(), "_epoch": 1})
    blob = bytearray.fromhex(VECTOR["blobHex"])
    blob[data.draw(st.integers(0, len(blob) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CannotOpen):
        encryptor.open_bytes(bytes(blob), "blobs/x")


@pytest.mark.parametrize("element", [{}, {"_encrypted": 1}, {"_encrypted": "é"}, {"_encrypted": "AAAA"},
                                     {"_encrypted": VECTOR["element"]["_encrypted"], "_epoch": 2}])  # fmt: skip
def test_what_is_not_encrypted_cannot_be_opened(element: dict[str, Any]) -> None:
    with pytest.raises(CannotOpen):
        Encryptor(PUBLISHED, OURS, [A.public]).decrypt(element)


def test_a_blob_is_opened_only_in_its_context() -> None:
    encryptor = Encryptor(PUBLISHED, OURS, [A.public])
    with pytest.raises(CannotOpen):
        encryptor.open_bytes(encryptor.seal_bytes(b"data", "here"), "there")
    with pytest.raises(CannotOpen):
        encryptor.open_bytes(b"")


def test_somebody_is_in_an_epoch_once_even_if_named_twice() -> None:
    keyring, _ = create(A, [OURS.public, OURS.public], now_s=NOW)
    assert keyring.recipients() == [OURS.public]
    with pytest.raises(BadKey):
        create(A, ["nobody"], now_s=NOW)
    with pytest.raises(BadKeyring, match="no epoch 5"):
        msgspec.structs.replace(keyring, current_epoch=5).recipients()
