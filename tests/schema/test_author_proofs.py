from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from strandline.schema.author_proofs import Proof, holds, proof_of

PROOFS = json.loads(Path(__file__).with_name("author_vectors.json").read_text())["proofs"]


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
