from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starfish_keyring.seal import SealedBlob
from starfish_keyring.seal import seal as published_seal
from starfish_keyring.seal import unseal as published_unseal

from strandline.signing.keys import KemKey, Signer
from strandline.signing.wrapped_keys import CannotOpen, seal, unseal

SEALER, SOMEBODY = Signer("01" * 32), Signer("02" * 32)
RECIPIENT = KemKey("65" * 32)
NOW = 1714000000


@given(st.binary(), st.sampled_from(["", "path/of/it"]))
def test_blobs_are_opened_in_both_directions(plaintext: bytes, context: str) -> None:
    ours = seal(plaintext, RECIPIENT.public, SEALER, now_s=NOW, context=context)
    assert unseal(ours, RECIPIENT, sealer=SEALER.public, context=context) == plaintext
    assert published_unseal(SealedBlob.from_dict(ours), RECIPIENT.private, aad=context or None) == plaintext
    theirs = published_seal(
        plaintext,
        RECIPIENT.public,
        sealer_ed_priv_hex=SEALER.seed,
        sealer_ed_pub_hex=SEALER.public,
        aad=context or None,
    )
    assert unseal(theirs.to_dict(), RECIPIENT, context=context) == plaintext


BLOB = seal(b"secret", RECIPIENT.public, SEALER, now_s=NOW)


@pytest.mark.parametrize(
    ("document", "arguments", "reason"),
    [
        (BLOB, {"sealer": SOMEBODY.public}, "not sealed by the expected sealer"),
        (BLOB, {"context": "elsewhere"}, "decryption failed"),
        ({**BLOB, "v": 1}, {}, "context it was sealed with"),
        ({**BLOB, "ct": "!"}, {}, "not base64"),
        ({**BLOB, "ct": "AAAA"}, {}, "decryption failed"),
        ({**BLOB, "entry": {**BLOB["entry"], "addedBy": SOMEBODY.public}}, {}, "signature"),
        ({}, {}, "invalid sealed blob"),
    ],
)
def test_nothing_else_is_opened(document: Any, arguments: dict[str, str], reason: str) -> None:
    with pytest.raises(CannotOpen, match=reason):
        unseal(document, RECIPIENT, **arguments)


def test_only_the_recipient_opens() -> None:
    with pytest.raises(CannotOpen):
        unseal(BLOB, KemKey.generate())
