"""The API keys of a running server: those of its settings, and those that were added while it runs.

Added keys are records of the internal log ``__keys__``, with the id of the key as the record's key: the last record of
an id is the key, and a revoked key has none. A backup contains the log, and recovery restores it. A record has the
SHA-256 digest of the secret, never the secret: it has 256 random bits, so the digest cannot be reversed.

Use this module on the event loop's thread, except for :meth:`ApiKeys.load`.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec

from strandline.engine import Batch, Config, Engine, Log
from strandline.engine.commit import Commit
from strandline.engine.errors import EngineError
from strandline.service.access import SCOPES, Access, Keys
from strandline.service.problems import FORBIDDEN, Problem, Refusal, limit_reached

log = logging.getLogger(__name__)

KEYS_LOG = "__keys__"
#: The id of the key of the server's own pipeline, which is neither configured nor added.
PIPELINE_KEY = "pipeline"
_CONFIG = Config(durability="fsync", compact=True)
#: The maximum number of added keys. All of them are in memory.
MAX_ADDED_KEYS = 10_000
_PAGE = 1000

KEY_NOT_FOUND = Problem("key_not_found", 404, "The API key does not exist, or this API key may not manage it.")
KEY_CONFIGURED = Problem(
    "key_configured", 409, "The API key is in the settings of the server. Change the settings and restart the server."
)
KEYS_OFF = Problem(
    "keys_off",
    409,
    "The server has no API keys in its settings, so every client may do everything. Set `api_keys` to a key with the "
    "scope `admin`, restart the server, and add further keys with it.",
)


class AddedKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key as it is stored. Times are milliseconds since 1970."""

    id: str
    #: The SHA-256 digest of the secret, in hexadecimal.
    digest: str
    name: str = ""
    scopes: tuple[str, ...]
    prefixes: tuple[str, ...] = ()
    created_at: int
    #: The id of the key that added this one.
    created_by: str
    #: When the key stops working; 0: never.
    expires_at: int = 0

    @property
    def access(self) -> Access:
        return Access(self.id, frozenset(self.scopes), self.prefixes)


#: The epoch, the head and the revision of the log; None: there is none.
Version = tuple[int, int, int] | None

_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(AddedKey)


class ApiKeys:
    """``now`` returns milliseconds. ``ended`` is called with the id of each key that no longer works."""

    def __init__(self, configured: Keys, now: Callable[[], int], ended: Callable[[str], None]) -> None:
        self.configured = configured
        self._now = now
        self._ended = ended
        self._engine: Engine | None = None
        self._read_at: Version = None
        self._by_id: dict[str, AddedKey] = {}
        self._by_digest: dict[bytes, tuple[AddedKey, Access]] = {}

    def load(self, engine: Engine) -> int:
        """Read the added keys; returns their number. Any thread may call it, before the server is ready."""
        self._engine = engine
        keys, self._read_at = self.read()
        for key in keys:
            self._put(key)
        return len(self._by_id)

    def read(self) -> tuple[list[AddedKey], Version]:
        """Return the keys in the log, and the version of the log. Any thread may call it."""
        version, found = self._version(), self._log
        keys: list[AddedKey] = []
        after, caught_up = 0, found is None
        while found is not None and not caught_up:
            page = found.read(after, _PAGE)
            keys += map(_decoder.decode, page.data)
            after, caught_up = page.next_after, page.caught_up
        return keys, version

    @property
    def _log(self) -> Log | None:
        return None if self._engine is None else self._engine.find(KEYS_LOG)

    def _version(self) -> Version:
        log = self._log
        return None if log is None else (log.epoch, log.head, log.revision)

    @property
    def is_stale(self) -> bool:
        """Whether the log has changed since it was read: the leader that this server follows has changed it."""
        return self._version() != self._read_at

    def replace(self, keys: list[AddedKey], version: Version) -> None:
        """Use these keys instead of those that were read before."""
        self._read_at = version
        kept = {key.id for key in keys}
        for id in [id for id in self._by_id if id not in kept]:
            self._remove(id)
        for key in keys:
            self._put(key)

    # --- who calls -------------------------------------------------------------------------------------------------

    def find(self, token: bytes) -> Access | None:
        """The access of the key with this secret; None if no key has it."""
        access = self.configured.find(token)
        if access is None and self._by_digest:
            # A lookup by digest reveals nothing about a secret, even if its duration reveals a part of the digest.
            found = self._by_digest.get(sha256(token).digest())
            if found is not None and not self._is_expired(found[0]):
                access = found[1]
        return access

    def works(self, access: Access) -> bool:
        """Whether the key of the access still works."""
        found = self._by_id.get(access.id)
        if found is None:
            return any(access.id == one.id for one in self.configured.accesses()) or not access.id
        return not self._is_expired(found)

    def _is_expired(self, key: AddedKey) -> bool:
        return bool(key.expires_at) and key.expires_at <= self._now()

    # --- management ------------------------------------------------------------------------------------------------

    def added(self, access: Access) -> list[AddedKey]:
        """The added keys that the caller may manage: those that may do no more than the caller."""
        return [key for key in self._by_id.values() if not self._is_expired(key) and access.covers(key.access)]

    def known(self, access: Access) -> list[Access]:
        """The keys of the settings that the caller may see, without the server's own key for its pipeline."""
        return [one for one in self.configured.accesses() if one.id != PIPELINE_KEY and access.covers(one)]

    def name_of(self, id: str) -> str:
        """The name of an added key; empty if there is none."""
        key = self._by_id.get(id)
        return "" if key is None else key.name

    def add(
        self, by: Access, name: str, scopes: tuple[str, ...], prefixes: tuple[str, ...], lifetime_ms: int
    ) -> tuple[AddedKey, str, Commit[Any]]:
        """Add a key, which expires no later than the caller's; returns it with its secret. The key is stored when the
        commit is done. Raises Refusal."""
        self._check_on()
        self._check_room()
        wanted = Access("", frozenset(scopes), prefixes)
        if not by.covers(wanted):
            raise Refusal(
                FORBIDDEN,
                "an API key can only add keys that may do no more than itself: choose scopes that this key has, and "
                f"prefixes that start with one of its own ({'|'.join(by.prefixes) or 'any name'})",
            )
        key, secret = self._make(by, name, scopes, prefixes, lifetime_ms)
        commit = self._append([key])
        self._put(key)
        return key, secret, commit

    def rotate(self, by: Access, id: str, keep_ms: int) -> tuple[AddedKey, AddedKey, str, Commit[Any]]:
        """Replace a key by one with the same rights, in one step. The old secret works for ``keep_ms`` longer. Returns
        the old key, the new one and its secret. Raises Refusal."""
        old = self._managed(by, id)
        if keep_ms:
            self._check_room()
        now = self._now()
        lifetime = old.expires_at - old.created_at if old.expires_at else 0
        new, secret = self._make(by, old.name, old.scopes, old.prefixes, lifetime)
        ends = now + keep_ms if not old.expires_at else min(now + keep_ms, old.expires_at)
        old = msgspec.structs.replace(old, expires_at=ends)
        commit = self._append([old, new])
        self._put(new)
        self._put(old)
        self.sweep()
        return old, new, secret, commit

    def revoke(self, by: Access, id: str) -> Commit[Any]:
        """Make a key invalid at once. It stays so after a restart when the commit is done. Raises Refusal."""
        self._managed(by, id)
        assert self._engine is not None
        commit: Commit[Any] = self._engine.log(KEYS_LOG).delete(key=id)
        self._remove(id)
        return commit

    def sweep(self) -> None:
        """Remove the keys whose time is over. They do not work before that either."""
        engine = self._engine
        if engine is None or not engine.writable:
            return
        for key in [key for key in self._by_id.values() if self._is_expired(key)]:
            self._remove(key.id)
            try:
                engine.log(KEYS_LOG).delete(key=key.id)
            except EngineError as error:
                # The key stays in the log, where its end is recorded; the next start removes it.
                log.error("cannot remove the expired API key %s: %s", key.id, error)

    def _managed(self, by: Access, id: str) -> AddedKey:
        self._check_on()
        key = self._by_id.get(id)
        if key is not None and not self._is_expired(key) and by.covers(key.access):
            return key
        if any(one.id == id for one in self.known(by)):
            raise Refusal(KEY_CONFIGURED, f"the API key {id} is in the settings of the server; change it there")
        raise Refusal(KEY_NOT_FOUND, f"no API key has the id {id!r}; GET /v0/keys lists them")

    def _check_on(self) -> None:
        if not self.configured:
            raise Refusal(
                KEYS_OFF,
                "the server has no API keys in its settings: set api_keys (STRANDLINE_API_KEYS) to a key with the "
                "scope admin, and restart the server",
            )

    def _check_room(self) -> None:
        if len(self._by_id) >= MAX_ADDED_KEYS:
            raise limit_reached("added API keys", MAX_ADDED_KEYS)

    def _make(
        self, by: Access, name: str, scopes: tuple[str, ...], prefixes: tuple[str, ...], lifetime_ms: int
    ) -> tuple[AddedKey, str]:
        # With this beginning, programs that look for secrets in code recognise it.
        secret = "strandline_" + secrets.token_urlsafe(32)
        now = self._now()
        ends = now + lifetime_ms if lifetime_ms else 0
        caller = self._by_id.get(by.id)
        if caller is not None and caller.expires_at:
            # Otherwise a key could outlive itself.
            ends = min(ends or caller.expires_at, caller.expires_at)
        key = AddedKey(
            id="k" + secrets.token_hex(6),
            digest=sha256(secret.encode()).hexdigest(),
            name=name,
            scopes=tuple(scope for scope in SCOPES if scope in scopes),
            prefixes=prefixes,
            created_at=now,
            created_by=by.id,
            expires_at=ends,
        )
        return key, secret

    # --- state -----------------------------------------------------------------------------------------------------

    def _append(self, keys: list[AddedKey]) -> Commit[Any]:
        assert self._engine is not None
        batch = Batch([_encode(key) for key in keys], [key.id for key in keys])
        found: Log | None = self._engine.find(KEYS_LOG)
        if found is None:
            return self._engine.create(KEYS_LOG, _CONFIG, batch=batch)
        return found.append(batch)

    def _put(self, key: AddedKey) -> None:
        self._by_id[key.id] = key
        self._by_digest[bytes.fromhex(key.digest)] = key, key.access

    def _remove(self, id: str) -> None:
        key = self._by_id.pop(id)
        del self._by_digest[bytes.fromhex(key.digest)]
        self._ended(id)
