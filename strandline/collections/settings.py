"""The settings of the collections protocol. The collections themselves are configured next to them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from strandline.setting import Flag, Milliseconds, Origins, Positive, Section, Text, Texts

#: How far the clock of a client may be off when it signs a request, and at the start and end of a certificate.
SKEW_MS = 300_000
#: The maximum time for which a signed request is valid: from a clock that is SKEW_MS slow to one that is SKEW_MS fast.
#: Documents remember the requests that appended to them for this long, even across a restart.
REPLAY_WINDOW_MS = 2 * SKEW_MS

ConfigEndpoint = Annotated[Literal["off", "public", "role-filtered"], Meta(description="off, public or role-filtered")]
Hops = Annotated[int, Meta(ge=0, le=100, description="a whole number from 0 to 100")]


class CollectionsSettings(Section, frozen=True, kw_only=True):
    """The settings for all collections."""

    config_file: Annotated[
        Text,
        "Configuration file of a Starfish server, as YAML (.yaml, .yml) or JSON. Its collections are added to those in "
        "the settings.",
    ] = ""
    max_collections_per_batch: Annotated[
        Positive, "Maximum number of collections, and of documents, in one batch pull."
    ] = 100
    max_batch_append_elements: Annotated[Positive, "Maximum number of elements that one batch pull can request."] = (
        10_000
    )
    batch_key_deny_suffixes: Annotated[Texts, "Batch pulls skip documents whose last path segment is one of these."] = (
        "_keyring",
        "_members",
    )
    trusted_proxy_hops: Annotated[
        Hops,
        "Number of proxies in front of the server that add to X-Forwarded-For; 0 ignores the header. The nearest "
        "proxy must be in `server.trusted_proxies`.",
    ] = 0
    cors: Annotated[
        Origins,
        "Origins whose pages may call collections, in addition to `server.allowed_origins`: https://example.org, or "
        "`*` for any.",
    ] = ()
    config_endpoint: Annotated[
        ConfigEndpoint,
        "What GET /config shows: off (nothing), public (all collections) or role-filtered (the collections that the "
        "caller has a role for).",
    ] = "off"
    anonymous: Annotated[Flag, "Allow callers without a certificate; they have the role `public`."] = True
    max_nonces: Annotated[
        Positive,
        "Maximum number of signed requests that are remembered to detect replays: each for at most ten minutes, "
        "in about 80 bytes. At the maximum, signed requests get 503.",
    ] = 1_000_000
    role_resolver_timeout_ms: Annotated[Milliseconds, "Maximum time of a role resolver written in Python."] = 5000
    revocations: Annotated[
        Texts, "Files with signed revocation lists; the server rereads them every five seconds."
    ] = ()
