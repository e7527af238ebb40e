"""What an operator may choose for all collections together."""

from __future__ import annotations

import msgspec

#: How far the clock of a client may be from ours, when it signs a request and when a certificate begins or ends.
SKEW_MS = 300_000
#: A signed request is valid for this long at most: from a clock that is behind by SKEW_MS to one that is ahead by as
#: much. Documents remember the requests that appended to them for this long, also over a restart.
REPLAY_WINDOW_MS = 2 * SKEW_MS


class CollectionsSettings(msgspec.Struct, frozen=True, kw_only=True):
    #: Names, and sets of parameters over all of them, of one batch pull.
    max_collections_per_batch: int = 100
    #: Elements that one batch pull may ask for.
    max_batch_append_elements: int = 5000
    #: Documents whose last segment is one of these are not shown by batch pulls.
    batch_key_deny_suffixes: tuple[str, ...] = ("_keyring", "_members")
    #: How many proxies in front of the server add to ``X-Forwarded-For``; 0: the header is not looked at.
    trusted_proxy_hops: int = 0
    #: The origins whose pages may call; ``*`` is every origin, none: browsers keep pages of other origins out.
    cors: tuple[str, ...] = ()
    #: What ``GET /config`` tells: ``off``, ``public`` or ``role-filtered``.
    config_endpoint: str = "off"
    #: Whether somebody without a certificate is somebody without roles, or nobody at all.
    anonymous: bool = True
    #: Signed requests that are remembered, so that none is taken twice; each for ten minutes at the most.
    max_nonces: int = 1_000_000
    #: How long a role resolver written in Python may take.
    role_resolver_timeout_ms: int = 5000
    #: Files with signed revocation lists.
    revocations: tuple[str, ...] = ()
