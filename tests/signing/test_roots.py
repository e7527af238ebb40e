from __future__ import annotations

import pytest
from starfish_identities import derive_root_identity

from strandline.signing.certificates import check, root_of

NOW = 1714000000


def test_a_passphrase_gives_the_identity_that_it_gives_elsewhere() -> None:
    ours, theirs = root_of("correct horse é battery"), derive_root_identity("correct horse é battery")
    assert (ours.signer.seed, ours.signer.public) == (theirs.keys.ed_priv, theirs.keys.ed_pub)
    assert (ours.kem.private, ours.kem.public) == (theirs.keys.kem_priv, theirs.keys.kem_pub)
    assert ours.user_id == theirs.user_id
    assert root_of("correct horse e\u0301 battery").user_id == ours.user_id
    cap = ours.cap(now_s=NOW)
    check(cap, NOW)
    assert cap["iss"] == cap["sub"]


@pytest.mark.parametrize("passphrase", ["", "  "])
def test_nobody_is_nobody(passphrase: str) -> None:
    with pytest.raises(ValueError, match="empty"):
        root_of(passphrase)
