"""API keys: which operations a key allows, and on which names.

The server keeps only the SHA-256 digest of a key. It hashes the token of a request and compares the digest with the
digest of every key, each in constant time, so that the duration reveals nothing about the keys.
"""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest
from typing import Protocol

import msgspec

#: The scopes of a key, in the order in which they are shown.
SCOPES = ("read", "write", "delete", "admin")
ALL_SCOPES = frozenset(SCOPES)

_SCOPES_BY_WORD: dict[str, frozenset[str]] = {
    **{scope: frozenset({scope}) for scope in SCOPES},
    **{scope[0]: frozenset({scope}) for scope in SCOPES},
    "rw": frozenset({"read", "write"}),
    "del": frozenset({"delete"}),
}


class BadKeys(ValueError):
    """The list of API keys is not valid. The message never quotes the list, because any part of it may be a secret."""

    def __init__(self, entry: int, why: str) -> None:
        super().__init__(f"API key {entry}: {why}")
        self.entry = entry
        self.why = why


class Access(msgspec.Struct, frozen=True):
    """The permissions of a key.

    ``id`` identifies the key in log lines and counters without revealing it, and changes only with the key itself. It
    is empty if no key is configured. Without ``prefixes`` the key may access every name.
    """

    id: str
    scopes: frozenset[str]
    prefixes: tuple[str, ...]

    def may(self, scope: str) -> bool:
        return scope in self.scopes

    def may_touch(self, name: str) -> bool:
        return not self.prefixes or name.startswith(self.prefixes)

    def may_touch_all(self, *names: str) -> bool:
        return not self.prefixes or all(name.startswith(self.prefixes) for name in names)

    def may_touch_some(self, start: str) -> bool:
        """Whether the key may access any name that starts with ``start``."""
        return self.may_touch(start) or any(prefix.startswith(start) for prefix in self.prefixes)

    def covers(self, other: Access) -> bool:
        """Whether this key may do everything that the other one may."""
        if not other.scopes <= self.scopes:
            return False
        if not self.prefixes:
            return True
        return bool(other.prefixes) and all(prefix.startswith(self.prefixes) for prefix in other.prefixes)

    def __str__(self) -> str:
        scopes = "+".join(scope for scope in SCOPES if scope in self.scopes)
        return f"{self.id} {scopes} {'|'.join(self.prefixes) or 'any name'}"


#: The access of every client when no keys are configured.
FULL_ACCESS = Access("", ALL_SCOPES, ())


class KnownKeys(Protocol):
    """The keys that a server accepts."""

    def find(self, token: bytes) -> Access | None:
        """The access of the key that matches the token; None if none matches."""

    def works(self, access: Access) -> bool:
        """Whether the key of the access still works."""


class Keys:
    """The configured keys; false if there are none."""

    def __init__(self, by_digest: dict[bytes, Access] | None = None) -> None:
        self._keys = tuple((by_digest or {}).items())

    @classmethod
    def parse(cls, text: str) -> Keys:
        """Parse entries of the form ``secret[:scopes[:prefixes]]``, separated by commas. Raises :class:`BadKeys`."""
        by_digest: dict[bytes, Access] = {}
        entries = [entry.strip() for entry in text.split(",")]
        for number, entry in enumerate(entries, 1):
            # Allow an empty list and a comma at the end.
            if not entry and number == len(entries):
                continue
            digest, access = _parse_entry(number, entry)
            if digest in by_digest:
                raise BadKeys(number, "the key is listed twice")
            by_digest[digest] = access
        return cls(by_digest)

    def with_key(self, secret: str, access: Access) -> Keys:
        """These keys and one more."""
        return Keys({**dict(self._keys), sha256(secret.encode()).digest(): access})

    def find(self, token: bytes) -> Access | None:
        """The access of the key that matches the token; None if none matches."""
        digest = sha256(token).digest()
        found = None
        for known, access in self._keys:
            if compare_digest(known, digest):
                found = access
        return found

    def works(self, access: Access) -> bool:
        """Configured keys work as long as the server runs."""
        return True

    def accesses(self) -> list[Access]:
        """The access of each key, in the order of the list."""
        return [access for _, access in self._keys]

    def __len__(self) -> int:
        return len(self._keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keys) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self._keys)

    def __repr__(self) -> str:
        return f"<Keys: {len(self)}>"


def _parse_entry(number: int, entry: str) -> tuple[bytes, Access]:
    # Only the first two colons are separators: prefixes may contain colons.
    secret, scopes, prefixes = (*entry.split(":", 2), "", "")[:3]
    if not secret:
        raise BadKeys(number, "the key is empty; write secret[:scopes[:prefixes]]")
    if secret != secret.strip():
        raise BadKeys(number, "the key ends with a space, which a request cannot send; remove the space")
    digest = sha256(secret.encode("utf-8", "surrogateescape")).digest()
    # Hashed again, so that no part of the digest appears in log lines.
    id = sha256(b"strandline key id " + digest).hexdigest()[:12]
    return digest, Access(id, _parse_scopes(number, scopes.strip()), _parse_prefixes(number, prefixes.strip()))


def _parse_scopes(number: int, text: str) -> frozenset[str]:
    if not text:
        return ALL_SCOPES
    scopes: frozenset[str] = frozenset()
    for word in text.split("+"):
        named = _SCOPES_BY_WORD.get(word.strip())
        if named is None:
            raise BadKeys(
                number,
                "unknown scope after the first ':'; expected read, write, delete, admin, r, w, d, a, rw or del, "
                "joined by '+'. A key cannot contain ':'",
            )
        scopes |= named
    return scopes


def _parse_prefixes(number: int, text: str) -> tuple[str, ...]:
    if not text:
        return ()
    prefixes = tuple(prefix.strip() for prefix in text.split("|"))
    if not all(prefixes):
        raise BadKeys(number, "a prefix is empty, which would allow every name; remove the extra '|'")
    if not text.isprintable():
        raise BadKeys(number, "a prefix contains unprintable characters, which names cannot contain")
    return prefixes
