"""The bounds that the protocol has and an operator may move. Zero means unbounded where that makes sense."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class TopicsSettings(msgspec.Struct, frozen=True, kw_only=True):
    max_batch_records: int = 10_000
    #: Data and meta of one record together.
    max_record_bytes: int = 1 << 20
    max_meta_bytes: int = 16 << 10
    max_meta_keys: int = 64
    max_tag_bytes: int = 256
    max_node_bytes: int = 128
    #: Records of one page, however many are asked for.
    max_limit: int = 1000
    #: Jobs of one claim, and seqs of one ack, nack or extend.
    max_claim: int = 1000
    max_watch_topics: int = 256
    max_topics: int = 100_000
    max_routers: int = 10_000
    max_watch_sessions: int = 10_000
    max_total_bytes: int = 0
    #: A watch session without an open stream is forgotten after this time.
    session_ttl_ms: int = 300_000
    #: A reader that takes nothing for this long gets larger and fewer frames, and after the timeout none.
    slow_consumer_grace_ms: int = 5_000
    slow_consumer_timeout_ms: int = 30_000
    #: Heartbeats are never more frequent than this.
    min_heartbeat_ms: int = 1_000


#: A number as the protocol has them, and the highest seq that a log can have: one beyond it counts as that.
U64 = Annotated[int, Meta(ge=0, extra_json_schema={"maximum": (1 << 64) - 1})]
MAX_SEQ = (1 << 63) - 1

DEFAULT_LIMIT = 256
MAX_WAIT_MS = 30_000
#: The byte budget of a page: when none is asked for, and at the most.
DEFAULT_PAGE_BYTES = 1 << 20
MAX_PAGE_BYTES = 8 << 20
MAX_IDEMPOTENCY_KEY_BYTES = 256
#: A nacked job can be kept away for at most this long.
MAX_NACK_DELAY_MS = 86_400_000
