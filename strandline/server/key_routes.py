"""The routes of API keys: list, add, rotate and revoke them while the server runs.

All of them need the scope ``admin``. A key sees and changes only keys that may do no more than itself.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from strandline.delivery.hub import Hub
from strandline.nearest_name import decode_body
from strandline.service.access import SCOPES, Access
from strandline.service.api_keys import AddedKey, ApiKeys
from strandline.service.http import NO_STORE, Call, Reply, Route, encode
from strandline.service.problems import invalid

#: Ten years: a longer lifetime is probably given in the wrong unit.
MAX_LIFETIME_MS = 10 * 365 * 86_400_000
#: How long a rotated secret may still work.
MAX_KEEP_MS = 90 * 86_400_000
MAX_NAME_LENGTH = 200
MAX_PREFIXES = 100
MAX_PREFIX_BYTES = 512

ScopeName = Literal["read", "write", "delete", "admin"]
Time = Annotated[int, Meta(ge=0)]


class KeyRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A key to add."""

    #: What the key may do.
    scopes: Annotated[list[ScopeName], Meta(min_length=1)]
    #: The beginnings of the names that the key may access; empty: all names.
    prefixes: Annotated[list[str], Meta(max_length=MAX_PREFIXES)] = []
    #: A text for people, such as the program that uses the key.
    name: Annotated[str, Meta(max_length=MAX_NAME_LENGTH)] = ""
    #: When the key stops working, in milliseconds from now; 0: never.
    expires_in_ms: Annotated[int, Meta(ge=0, le=MAX_LIFETIME_MS)] = 0


class KeyRotation(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    #: How long the old secret still works, in milliseconds; 0: it stops at once.
    keep_ms: Annotated[int, Meta(ge=0, le=MAX_KEEP_MS)] = 0


class KeyState(msgspec.Struct, kw_only=True):
    """An API key; its secret is not shown. Times are milliseconds since 1970."""

    id: str
    name: str
    scopes: list[ScopeName]
    prefixes: list[str]
    #: `settings`: the key is in the settings of the server, where it is changed. `added`: it was added later.
    source: Literal["settings", "added"]
    created_at: Time | None
    #: The id of the key that added this one.
    created_by: str | None
    #: When the key stops working; null: never.
    expires_at: Time | None


class KeyList(msgspec.Struct):
    keys: list[KeyState]


class KeyAdded(msgspec.Struct):
    key: KeyState
    #: Send it as `Authorization: Bearer …`. The server keeps only its digest, and this is the only answer that has it.
    secret: str


class KeyRotated(msgspec.Struct):
    key: KeyState
    #: The secret of the new key. This is the only answer that has it.
    secret: str
    #: The old key, which ends at `expires_at`.
    replaced: KeyState


class KeyRevoked(msgspec.Struct):
    id: str
    revoked: bool


_adding = msgspec.json.Decoder(KeyRequest)
_rotating = msgspec.json.Decoder(KeyRotation)


class KeyRoutes:
    def __init__(self, keys: ApiKeys, hub: Hub) -> None:
        self._keys = keys
        self._hub = hub

    def routes(self) -> list[Route]:
        return [
            Route(method="GET", path="/v0/keys", handler=self.list, scopes=("admin",)),
            Route(method="POST", path="/v0/keys", handler=self.add, scopes=("admin",), body="required"),
            Route(method="POST", path="/v0/keys/{id}/rotate", handler=self.rotate, scopes=("admin",), body="optional"),
            Route(method="DELETE", path="/v0/keys/{id}", handler=self.revoke, scopes=("admin",)),
        ]

    def list(self, call: Call) -> Reply:
        """GET /v0/keys"""
        configured = [_configured(one) for one in self._keys.known(call.access)]
        return _reply(KeyList(configured + [_state(one) for one in self._keys.added(call.access)]))

    def add(self, call: Call) -> Awaitable[Reply]:
        """POST /v0/keys"""
        wanted = decode_body(_adding, call.body)
        _check_text("name", wanted.name)
        for prefix in wanted.prefixes:
            if not prefix or len(prefix.encode("utf-8", "surrogatepass")) > MAX_PREFIX_BYTES:
                raise invalid(
                    f"a prefix is empty or longer than {MAX_PREFIX_BYTES} bytes; leave it out to allow any name"
                )
            _check_text("a prefix", prefix)
        key, secret, commit = self._keys.add(
            call.access, wanted.name, tuple(wanted.scopes), tuple(wanted.prefixes), wanted.expires_in_ms
        )
        return self._hub.when_done(commit, lambda _: _reply(KeyAdded(_state(key), secret), 201))

    def rotate(self, call: Call) -> Awaitable[Reply]:
        """POST /v0/keys/{id}/rotate"""
        wanted = decode_body(_rotating, call.body) if call.body else KeyRotation()
        old, new, secret, commit = self._keys.rotate(call.access, call.param("id"), wanted.keep_ms)
        return self._hub.when_done(commit, lambda _: _reply(KeyRotated(_state(new), secret, _state(old))))

    def revoke(self, call: Call) -> Awaitable[Reply]:
        """DELETE /v0/keys/{id}"""
        id = call.param("id")
        commit = self._keys.revoke(call.access, id)
        return self._hub.when_done(commit, lambda _: _reply(KeyRevoked(id, True)))


def _check_text(what: str, text: str) -> None:
    if not text.isprintable():
        raise invalid(f"{what} contains unprintable characters")


def _configured(access: Access) -> KeyState:
    return KeyState(
        id=access.id,
        name="",
        scopes=[scope for scope in SCOPES if access.may(scope)],  # type: ignore[misc]
        prefixes=[*access.prefixes],
        source="settings",
        created_at=None,
        created_by=None,
        expires_at=None,
    )


def _state(key: AddedKey) -> KeyState:
    return KeyState(
        id=key.id,
        name=key.name,
        scopes=[*key.scopes],  # type: ignore[list-item]
        prefixes=[*key.prefixes],
        source="added",
        created_at=key.created_at,
        created_by=key.created_by,
        expires_at=key.expires_at or None,
    )


def _reply(answer: msgspec.Struct, status: int = 200) -> Reply:
    return Reply(encode(answer), status, headers=(NO_STORE,))
