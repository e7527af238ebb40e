"""API keys: who may do what, and to which names.

Of a key only the SHA-256 digest is kept. A presented token is hashed and its digest compared with that of every key,
each in constant time and all of them always, so that the time it takes tells nothing about the keys.
"""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest

import msgspec

#: What a key can be allowed to do, in the order in which scopes are shown.
SCOPES = ("read", "write", "delete", "admin")
ALL_SCOPES = frozenset(SCOPES)

_SCOPES_BY_WORD: dict[str, frozenset[str]] = {
    **{scope: frozenset({scope}) for scope in SCOPES},
    **{scope[0]: frozenset({scope}) for scope in SCOPES},
    "rw": frozenset({"read", "write"}),
    "del": frozenset({"delete"}),
}


class BadKeys(ValueError):
    """The text that lists the keys makes no sense. The message never quotes from it: any part may be a secret."""

    def __init__(self, entry: int, why: str) -> None:
        super().__init__(f"API key {entry}: {why}")
        self.entry = entry
        self.why = why


class Access(msgspec.Struct, frozen=True):
    """What the holder of a key may do.

    ``id`` tells keys apart in logs and counters: it stays the same as long as the secret does, and is not the secret.
    It is empty where there is no key to attribute something to. Without ``prefixes`` every name may be touched.
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

    def __str__(self) -> str:
        scopes = "+".join(scope for scope in SCOPES if scope in self.scopes)
        return f"{self.id} {scopes} {'|'.join(self.prefixes) or 'any name'}"


#: Everybody's access when no keys are configured.
FULL_ACCESS = Access("", ALL_SCOPES, ())


class Keys:
    """The keys that are configured; false when there are none."""

    def __init__(self, by_digest: dict[bytes, Access] | None = None) -> None:
        self._keys = tuple((by_digest or {}).items())

    @classmethod
    def parse(cls, text: str) -> Keys:
        """Read ``secret[:scopes[:prefixes]]``, separated by commas; refuse everything that is not clearly right."""
        by_digest: dict[bytes, Access] = {}
        entries = [entry.strip() for entry in text.split(",")]
        for number, entry in enumerate(entries, 1):
            # A comma at the end, or nothing at all, is harmless.
            if not entry and number == len(entries):
                continue
            digest, access = _parse_entry(number, entry)
            if digest in by_digest:
                raise BadKeys(number, "this key is listed twice")
            by_digest[digest] = access
        return cls(by_digest)

    def find(self, token: bytes) -> Access | None:
        """Whose token this is."""
        digest = sha256(token).digest()
        found = None
        for known, access in self._keys:
            if compare_digest(known, digest):
                found = access
        return found

    def accesses(self) -> list[Access]:
        """What is granted, in the order in which the keys are listed."""
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
    # Only the first two colons separate: prefixes may contain more of them.
    secret, scopes, prefixes = (*entry.split(":", 2), "", "")[:3]
    if not secret:
        raise BadKeys(number, "the key itself is missing")
    if secret != secret.strip():
        raise BadKeys(number, "the key ends with a space, which no request can present")
    digest = sha256(secret.encode("utf-8", "surrogateescape")).digest()
    # Hashed once more, so that no part of what tokens are compared with gets into logs.
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
                "after the key and a ':' come the scopes, joined by '+': read, write, delete, admin, "
                "or r, w, d, a, rw, del; a key cannot contain ':'",
            )
        scopes |= named
    return scopes


def _parse_prefixes(number: int, text: str) -> tuple[str, ...]:
    if not text:
        return ()
    prefixes = tuple(prefix.strip() for prefix in text.split("|"))
    if not all(prefixes):
        raise BadKeys(number, "one of the prefixes is empty, which would allow every name")
    if not text.isprintable():
        raise BadKeys(number, "a prefix has characters that cannot be printed, which no name has")
    return prefixes
