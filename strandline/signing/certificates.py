"""Cap certificates: statements, signed by their issuer, of what the holder of a key may do; and root identities.

A certificate is a JSON object. Unknown members are allowed and are signed with the rest, so it stays a dict. A
``device`` certificate lets a key act as its issuer; a ``member`` certificate lets it act as itself on one collection of
the issuer; an ``audience`` certificate names no subject: each holder signs with their own key. The keys of a root
identity are derived from a passphrase, and it issues a certificate to itself.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from secrets import token_bytes
from typing import Any, NamedTuple
from unicodedata import normalize

from strandline.signing import globs
from strandline.signing.canonical_json import NotJson, canonical, parse_signed
from strandline.signing.keys import KemKey, Signer, is_key, user_id, verify
from strandline.signing.wrapped_keys import derived

DOMAIN = b"starfish-capcert-v1\n"
#: The prefix of a certificate in the header ``Authorization``.
SCHEME = "Cap "
MAX_HEADER = 8192
#: The maximum difference between the clocks of issuers and servers.
MAX_SKEW_S = 300
MAX_AUDIENCE = 64

KINDS = ("device", "member", "audience")
OPS = ("read", "write", "list")

_NONCE_BYTES = 16
_LOWERCASE_KEY = re.compile("[0-9a-f]{64}")

Cert = dict[str, Any]


class BadCap(ValueError):
    """An invalid certificate; ``code`` says why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def encode(cert: Cert) -> str:
    """Return the text after ``Cap`` in the header ``Authorization``."""
    return b64encode(canonical(cert)).decode()


def decode(text: str) -> Cert:
    """Return the certificate in the text after ``Cap``. Raises BadCap ``malformed-encoding``."""
    if len(text) > MAX_HEADER:
        raise BadCap("malformed-encoding")
    return _decode(text)


def encode_link(cert: Cert) -> str:
    """Return an audience certificate as the fragment of a link that can be shared. Raises BadCap."""
    if cert.get("kind") != "audience":
        raise BadCap("malformed-shape")
    return urlsafe_b64encode(canonical({"cap": cert, "v": 1})).decode().rstrip("=")


def decode_link(fragment: str) -> Cert:
    """Return the audience certificate in a fragment. Checks its form, but not its validity period and signature. Raises
    BadCap."""
    payload = _decode(fragment.strip().translate(str.maketrans("-_", "+/")))
    cert = payload.get("cap")
    if payload.get("v") != 1 or not isinstance(cert, dict) or cert.get("kind") != "audience":
        raise BadCap("malformed-shape")
    check_shape(cert)
    return cert


def check(cert: Cert, now_s: float) -> None:
    """Check that the certificate has the right form, is currently valid, and is signed. Raises BadCap for the first
    problem."""
    check_shape(cert)
    if cert["exp"] <= cert["nbf"]:
        raise BadCap("inverted-window")
    if now_s < cert["nbf"] - MAX_SKEW_S:
        raise BadCap("not-yet-valid")
    if now_s > cert["exp"] + MAX_SKEW_S:
        raise BadCap("expired")
    signature = cert.get("sig")
    if not isinstance(signature, str) or not _signature_holds(cert["iss"], signature, signed_bytes(cert)):
        raise BadCap("bad-signature")


def signed_bytes(cert: Cert) -> bytes:
    return DOMAIN + canonical({name: value for name, value in cert.items() if name != "sig"})


def check_shape(cert: Cert) -> None:
    """Check that all members are present and have the right types, and that the names match the keys. Raises BadCap."""
    kind = cert.get("kind")
    if kind not in KINDS or not is_key(cert.get("iss")) or not isinstance(cert.get("issUserId"), str):
        raise BadCap("malformed-shape")
    if not _is_nonce(cert.get("nonce")):
        raise BadCap("malformed-shape")
    if kind == "audience":
        if not cert.keys().isdisjoint(("sub", "subKem", "subUserId")):
            raise BadCap("audience-has-sub")
    elif not is_key(cert.get("sub")) or not is_key(cert.get("subKem")):
        raise BadCap("malformed-shape")
    if not _is_whole(cert.get("nbf")) or not _is_whole(cert.get("exp")):
        raise BadCap("malformed-shape")
    if "subUserId" in cert and not isinstance(cert["subUserId"], str):
        raise BadCap("malformed-shape")
    _check_scope(cert.get("scope"))
    _check_audience(cert)
    if user_id(cert["iss"]) != cert["issUserId"]:
        raise BadCap("iss-userid-mismatch")
    if "subUserId" in cert and user_id(cert["sub"]) != cert["subUserId"]:
        raise BadCap("sub-userid-mismatch")


def check_shared(cert: Cert) -> None:
    """Check that a certificate for others covers one collection, and nothing that only its owner may see or change.

    A device certificate passes if its form is right. Raises BadCap.
    """
    check_shape(cert)
    kind = cert["kind"]
    if kind == "member":
        if cert.get("subUserId") is None:
            raise BadCap("member-missing-sub-userid")
        if cert["subUserId"] == cert["issUserId"]:
            raise BadCap("member-self")
    if kind in ("member", "audience"):
        _check_barriers(cert, kind)


def _check_barriers(cert: Cert, kind: str) -> None:
    scope = cert["scope"]
    if "*" in scope["collections"]:
        raise BadCap(f"{kind}-wildcard-collections")
    if len(scope["collections"]) != 1:
        raise BadCap(f"{kind}-multi-collection")
    collection, owner = scope["collections"][0], cert["issUserId"]
    # A certificate without paths covers all of them.
    paths = [path.replace(globs.IDENTITY, owner) for path in scope.get("paths") or ["**"]]
    private = f"users/{owner}"
    if any(path == private or path.startswith(f"{private}/") for path in paths):
        raise BadCap(f"{kind}-private-path")
    if not _is_kept_out(paths, f"{collection}/_members"):
        raise BadCap(f"{kind}-members-not-denied")
    if "write" in scope["ops"] and not _is_kept_out(paths, f"{collection}/_keyring"):
        raise BadCap(f"{kind}-keyring-not-denied")


def _is_kept_out(paths: list[str], path: str) -> bool:
    # A pattern that denies a parent of the path would also work when the request is checked, but issuers and verifiers
    # have agreed on a pattern that denies exactly this path.
    denies = [each[1:] for each in paths if each.startswith(globs.DENIES)]
    return not globs.allowed(paths, path) or any(globs.matches(deny, path) for deny in denies)


def _check_scope(scope: Any) -> None:
    if not isinstance(scope, dict):
        raise BadCap("malformed-shape")
    if not _is_list_of_texts(scope.get("ops")) or not set(scope["ops"]) <= set(OPS):
        raise BadCap("malformed-shape")
    if not _is_list_of_texts(scope.get("collections")):
        raise BadCap("malformed-shape")
    if scope.get("paths") is not None and not _is_list_of_texts(scope["paths"]):
        raise BadCap("malformed-shape")


def _check_audience(cert: Cert) -> None:
    if "aud" not in cert:
        return
    audience = cert["aud"]
    if cert["kind"] != "audience":
        raise BadCap("non-audience-has-aud")
    if not isinstance(audience, list):
        raise BadCap("audience-aud-bad-entry")
    if not audience:
        raise BadCap("audience-empty-aud")
    if len(audience) > MAX_AUDIENCE:
        raise BadCap("audience-aud-too-large")
    if not all(isinstance(each, str) and _LOWERCASE_KEY.fullmatch(each) for each in audience):
        raise BadCap("audience-aud-bad-entry")
    if len(set(audience)) != len(audience):
        raise BadCap("audience-aud-dup")


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_whole(value: Any) -> bool:
    """Return whether a value is an integer. JSON has one number type, so 7.0 is an integer too."""
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


def _is_nonce(value: Any) -> bool:
    try:
        return isinstance(value, str) and len(b64decode(value, validate=True)) == _NONCE_BYTES
    except ValueError:
        return False


def _decode(text: str) -> Cert:
    text = text.rstrip("=")
    try:
        cert = parse_signed(b64decode(text + "=" * (-len(text) % 4), validate=True))
    except (NotJson, ValueError):
        raise BadCap("malformed-encoding") from None
    if not isinstance(cert, dict):
        raise BadCap("malformed-encoding")
    return cert


@lru_cache(maxsize=1024)
def _signature_holds(issuer: str, signature: str, message: bytes) -> bool:
    # The same few certificates come with many requests.
    return verify(issuer, signature, message)


#: Thirty days: long enough not to annoy people, short enough to limit the risk of a lost device.
DEFAULT_TTL_S = 30 * 24 * 3600

Scope = Mapping[str, Any]


def everything() -> dict[str, list[str]]:
    """Return a scope with all operations on everything of the issuer; only for devices."""
    return {"ops": ["read", "list", "write"], "paths": ["**"], "collections": ["*"]}


def read_only(collection: str) -> dict[str, list[str]]:
    """Return a scope to read everything below ``collection/``. A document whose path is the name itself needs the path
    ``collection``."""
    return {
        "ops": ["read", "list"],
        "paths": [f"{collection}/**", f"!{collection}/_members"],
        "collections": [collection],
    }


def writer(collection: str) -> dict[str, list[str]]:
    """Return a scope to read and write everything below ``collection/``, except who may read it."""
    return {
        "ops": ["read", "list", "write"],
        "paths": [f"{collection}/**", f"!{collection}/_keyring", f"!{collection}/_members"],
        "collections": [collection],
    }


def admin(collection: str) -> dict[str, list[str]]:
    """Return a scope for everything below ``collection/``; only for devices."""
    return {"ops": ["read", "list", "write"], "paths": [f"{collection}/**"], "collections": [collection]}


def mint_device(
    issuer: Signer,
    subject: str,
    subject_kem: str,
    scope: Scope,
    *,
    now_s: int,
    ttl_s: int = DEFAULT_TTL_S,
    nonce: bytes | None = None,
) -> Cert:
    """Issue a certificate with which the owner of the key ``subject`` acts as the issuer. Raises BadCap."""
    cert = _begun(issuer, "device", scope, now_s, ttl_s, nonce)
    cert |= {"sub": subject, "subKem": subject_kem}
    check_shape(cert)
    return _signed(issuer, cert)


def mint_member(
    issuer: Signer,
    subject: str,
    subject_kem: str,
    collection: str,
    scope: Scope,
    *,
    now_s: int,
    ttl_s: int = DEFAULT_TTL_S,
    nonce: bytes | None = None,
) -> Cert:
    """Issue a certificate with which the owner of ``subject`` may use one collection of the issuer. Raises BadCap."""
    cert = _begun(issuer, "member", {**scope, "collections": [collection]}, now_s, ttl_s, nonce)
    cert |= {"sub": subject, "subKem": subject_kem, "subUserId": user_id(subject)}
    check_shared(cert)
    return _signed(issuer, cert)


def mint_audience(
    issuer: Signer,
    collection: str,
    scope: Scope,
    audience: Sequence[str] | None = None,
    *,
    now_s: int,
    ttl_s: int = DEFAULT_TTL_S,
    nonce: bytes | None = None,
) -> Cert:
    """Issue a certificate on one collection for everyone, or for the owners of the keys in ``audience``. Raises
    BadCap."""
    cert = _begun(issuer, "audience", {**scope, "collections": [collection]}, now_s, ttl_s, nonce)
    if audience is not None:
        cert["aud"] = list(audience)
    check_shared(cert)
    return _signed(issuer, cert)


def _begun(issuer: Signer, kind: str, scope: Scope, now_s: int, ttl_s: int, nonce: bytes | None) -> Cert:
    if ttl_s <= 0:
        raise BadCap("inverted-window")
    return {
        "v": 1,
        "kind": kind,
        "iss": issuer.public,
        "issUserId": issuer.user_id,
        "scope": dict(scope),
        "nbf": now_s,
        "exp": now_s + ttl_s,
        "nonce": b64encode(token_bytes(16) if nonce is None else nonce).decode(),
    }


def _signed(issuer: Signer, cert: Cert) -> Cert:
    return {**cert, "sig": issuer.sign(signed_bytes(cert))}


# Other implementations use this number for the same passphrase: any other number would derive other keys.
_SALT = b"starfish-v3-root"
_MEMORY_KIB = 47104
_ROUNDS = 3


class Root(NamedTuple):
    signer: Signer
    kem: KemKey

    @property
    def user_id(self) -> str:
        return self.signer.user_id

    def cap(self, *, now_s: int, ttl_s: int = DEFAULT_TTL_S) -> Cert:
        """Return the certificate that an identity issues to itself, for everything."""
        return mint_device(self.signer, self.signer.public, self.kem.public, everything(), now_s=now_s, ttl_s=ttl_s)


def root_of(passphrase: str) -> Root:
    """Derive the identity of a passphrase. Takes about a tenth of a second and 46 MiB, on purpose. Raises
    ValueError."""
    if not passphrase.strip():
        raise ValueError("a passphrase must not be empty")
    # The same letters can have different code points, depending on the keyboard.
    secret = normalize("NFC", passphrase).encode()
    from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

    master = Argon2id(salt=_SALT, length=32, iterations=_ROUNDS, lanes=1, memory_cost=_MEMORY_KIB).derive(secret)
    seed = derived(master, b"starfish-root-sign", b"ed25519")
    return Root(Signer(seed.hex()), KemKey(derived(master, b"starfish-root-kem", b"x25519").hex()))
