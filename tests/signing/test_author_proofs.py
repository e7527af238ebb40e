from __future__ import annotations

import json
from base64 import b64decode, b64encode
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starfish_protocol.append_author import sign_append_author, verify_append_author

from strandline.signing.author_proofs import Proof, holds, holds_for, meta_of, proof_of, sign, signed_bytes
from strandline.signing.keys import Signer

VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text())
PROOFS = [
    {
        "authorPubkey": vector["pub"],
        "authorSignature": vector["sigB64"],
        "documentKey": vector["documentKey"],
        "data": vector["data"],
        "canon": vector["canon"],
    }
    for vector in VECTORS["author"]
]
SIGNERS = {signer.public: signer for signer in (Signer(key["priv"]) for key in VECTORS["keys"].values())}


@pytest.mark.parametrize("vector", PROOFS, ids=lambda vector: vector["data"][:20])
def test_a_proof_is_what_other_implementations_make(vector: dict[str, str]) -> None:
    key, data = vector["documentKey"], vector["data"].encode()
    assert signed_bytes(key, data) == vector["canon"].encode()
    proof = sign(SIGNERS[vector["authorPubkey"]], key, json.loads(data))
    assert proof == Proof(vector["authorPubkey"], vector["authorSignature"])


@given(st.text(), st.text())
def test_a_proof_goes_into_a_meta_and_comes_out_of_it(key: str, signature: str) -> None:
    assert proof_of(meta_of(Proof(key, signature))) == Proof(key, signature)


@given(st.dictionaries(st.text(), st.text() | st.integers(-(2**53), 2**53) | st.none()), st.text(min_size=1))
def test_published_proofs_hold_here_and_ours_there(data: dict[str, object], key: str) -> None:
    signer = Signer("07" * 32)
    ours = sign(signer, key, data)
    assert holds_for(ours, key, data)
    assert verify_append_author(key, data, *ours)
    theirs = sign_append_author(key, data, signer.public, signer.seed)
    assert ours == Proof(theirs["authorPubkey"], theirs["authorSignature"])
    assert not holds_for(ours, key, {**data, "one more": 1})


@given(st.integers(0, 63), st.integers(1, 255))
def test_a_changed_byte_of_the_signature_never_holds(position: int, change: int) -> None:
    signature = bytearray(b64decode(PROOFS[0]["authorSignature"]))
    signature[position] ^= change
    proof = Proof(PROOFS[0]["authorPubkey"], b64encode(signature).decode())
    assert not holds(proof, PROOFS[0]["documentKey"], PROOFS[0]["data"].encode())


@pytest.mark.parametrize("vector", PROOFS, ids=lambda vector: vector["data"][:20])
def test_proofs_made_elsewhere_hold_and_hold_for_nothing_else(vector: dict[str, str]) -> None:
    meta = json.dumps({"authorPubkey": vector["authorPubkey"], "authorSignature": vector["authorSignature"], "x": 1})
    proof = proof_of(meta.encode())
    assert proof is not None
    key, data = vector["documentKey"], vector["data"].encode()
    assert holds(proof, key, data)
    assert holds(proof, key, msgspec.json.format(data, indent=2))
    assert not holds(proof, key + "x", data)
    assert not holds(proof, key, data.replace(b"}", b',"more":1}', 1) if data != b"{}" else b'{"more":1}')
    other = next(each["authorPubkey"] for each in PROOFS if each["authorPubkey"] != vector["authorPubkey"])
    assert not holds(Proof(other, proof.signature), key, data)


@pytest.mark.parametrize(
    "proof",
    [
        Proof("", ""),
        Proof("zz" * 32, "AAAA"),
        Proof("00" * 31, "AAAA"),
        Proof("ff" * 32, "A" * 88),
        Proof(PROOFS[0]["authorPubkey"], "not base64!"),
        Proof(PROOFS[0]["authorPubkey"], "ä"),
        Proof(PROOFS[0]["authorPubkey"], "AAAA"),
    ],
)
def test_nonsense_does_not_hold(proof: Proof) -> None:
    assert not holds(proof, "events", b'{"msg":"a"}')


def test_data_that_is_not_json_has_no_author() -> None:
    proof = Proof(PROOFS[0]["authorPubkey"], PROOFS[0]["authorSignature"])
    assert not holds(proof, "events", b"\xff")
    assert not holds(proof, "events", b"[" * 100_000)


@pytest.mark.parametrize(
    "meta",
    [None, b"", b"{}", b"no json authorSignature", b'"authorSignature"', b'{"authorSignature":"x"}',
     b'{"authorPubkey":1,"authorSignature":"x"}', b'\xff"authorSignature"'],
)  # fmt: skip
def test_a_meta_without_both_strings_has_no_proof(meta: bytes | None) -> None:
    assert proof_of(meta) is None
