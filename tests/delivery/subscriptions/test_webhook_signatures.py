from __future__ import annotations

from base64 import urlsafe_b64decode

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from strandline.delivery.subscriptions.webhook_signatures import WebhookSigner

SEED = bytes(range(32))


def _public(signer: WebhookSigner) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(urlsafe_b64decode(signer.public_key.x + "="))


def test_the_public_key_verifies_what_was_signed_with_the_time_and_the_body() -> None:
    signer = WebhookSigner(SEED)
    parts = dict(part.split("=", 1) for part in signer.sign(b'{"a":1}', 1_700_000_000_999).split(","))
    assert (parts["t"], parts["kid"]) == ("1700000000", signer.kid)
    signature = urlsafe_b64decode(parts["ed25519"] + "==")
    _public(signer).verify(signature, b'1700000000.{"a":1}')
    with pytest.raises(InvalidSignature):
        _public(signer).verify(signature, b'1700000001.{"a":1}')


def test_the_same_seed_is_the_same_key() -> None:
    assert WebhookSigner(SEED).public_key == WebhookSigner(SEED).public_key
    assert WebhookSigner(SEED).kid != WebhookSigner(bytes(32)).kid


def test_the_key_is_named_by_its_thumbprint() -> None:
    # The example key of RFC 8037, appendix A.3.
    seed = urlsafe_b64decode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=")
    assert WebhookSigner(seed).kid == "ds_kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
