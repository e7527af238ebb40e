"""Revocations: certificates and keys that an issuer has revoked before they expire, in a list that the issuer signs.

Only the list with the highest generation of each issuer counts, so a later list repeats the entries that still matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from strandline.signing.canonical_json import canonical
from strandline.signing.certificates import Cert
from strandline.signing.keys import Signer, is_key, user_id, verify

DOMAIN = b"starfish-revlist-v1\n"
#: Anyone can sign a list, so the number of stored lists must be limited.
MAX_ISSUERS = 10_000


class BadRevocations(ValueError):
    """A refused list; ``code`` says why.

    The code is malformed-shape, bad-signature, stale-generation or too-many-issuers.
    """

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message or code)
        self.code = code


class StaleRevocations(BadRevocations):
    """A list whose generation is not higher than that of the issuer's current list."""

    def __init__(self, generation: int, in_force: int) -> None:
        super().__init__(
            "stale-generation", f"generation {generation} is not higher than the current generation {in_force}"
        )
        self.generation = generation
        self.in_force = in_force


class _Accepted(NamedTuple):
    generation: int
    certificates: frozenset[tuple[str, str]]
    subjects: frozenset[str]


class Revocations:
    """The accepted lists. Thread-safe. Never waits."""

    def __init__(self, max_issuers: int = MAX_ISSUERS) -> None:
        self._max_issuers = max_issuers
        self._accepted: dict[str, _Accepted] = {}

    def accept(self, document: Any) -> None:
        """Accept a signed list, which replaces the issuer's last one. Raises BadRevocations."""
        _check_shape(document)
        if not verify(document["iss"], document["sig"], signed_bytes(document)):
            raise BadRevocations("bad-signature")
        issuer, generation = document["iss"].lower(), document["generation"]
        current = self._accepted.get(issuer)
        if current is not None and generation <= current.generation:
            raise StaleRevocations(generation, current.generation)
        if current is None and len(self._accepted) >= self._max_issuers:
            raise BadRevocations("too-many-issuers")
        self._accepted[issuer] = _Accepted(
            generation,
            frozenset((each["sub"].lower(), each["nonce"]) for each in document["revoked"]),
            # Certificates without a subject are for everyone; they are revoked one by one.
            frozenset(each["sub"].lower() for each in document.get("revokedSubjects", ()) if each["sub"]),
        )

    def is_revoked(self, cert: Cert) -> bool:
        accepted = self._accepted.get(cert["iss"].lower())
        if accepted is None:
            return False
        subject = cert.get("sub", "").lower()
        return subject in accepted.subjects or (subject, cert["nonce"]) in accepted.certificates


def signed_list(
    issuer: Signer, generation: int, revoked: Iterable[Cert] = (), subjects: Iterable[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Return a signed list that revokes these certificates, and all certificates of the subjects given as ``{"sub",
    "exp"}``."""
    document: dict[str, Any] = {
        "v": 1,
        "iss": issuer.public,
        "issUserId": issuer.user_id,
        "generation": generation,
        "revoked": [{"sub": each.get("sub", ""), "nonce": each["nonce"], "exp": each["exp"]} for each in revoked],
    }
    if subjects is not None:
        document["revokedSubjects"] = list(subjects)
    return {**document, "sig": issuer.sign(signed_bytes(document))}


def signed_bytes(document: dict[str, Any]) -> bytes:
    return DOMAIN + canonical({name: value for name, value in document.items() if name != "sig"})


def _check_shape(document: Any) -> None:
    if not (
        isinstance(document, dict)
        and is_key(document.get("iss"))
        and isinstance(document.get("sig"), str)
        and type(document.get("generation")) is int
        and _are_entries(document.get("revoked"), ("sub", "nonce"))
        and _are_entries(document.get("revokedSubjects", []), ("sub",))
        and user_id(document["iss"]) == document.get("issUserId")
    ):
        raise BadRevocations("malformed-shape")


def _are_entries(value: Any, names: tuple[str, ...]) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, dict) and all(isinstance(each.get(name), str) for name in names) for each in value
    )
