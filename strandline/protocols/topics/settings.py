"""The limits of the topics protocol: settings, and fixed limits."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from strandline.engine.record import MAX_KEY_BYTES, MAX_NODE_BYTES
from strandline.service.settings import BatchBytes, BatchRecords
from strandline.setting import Positive, Section

TagBytes = Annotated[int, Meta(ge=1, le=MAX_KEY_BYTES, description=f"a whole number from 1 to {MAX_KEY_BYTES}")]
NodeBytes = Annotated[int, Meta(ge=1, le=MAX_NODE_BYTES, description=f"a whole number from 1 to {MAX_NODE_BYTES}")]


class TopicsSettings(Section, frozen=True, kw_only=True):
    """What one request of the topics protocol may contain or ask for."""

    max_batch_records: Annotated[BatchRecords, "Maximum number of records in one write."] = 10_000
    max_record_bytes: Annotated[BatchBytes, "Maximum size of the data and the meta of one record together."] = 1 << 20
    max_meta_bytes: Annotated[BatchBytes, "Maximum size of the meta of one record."] = 16 << 10
    max_tag_bytes: Annotated[TagBytes, "Maximum size of the tag of one record."] = 256
    max_node_bytes: Annotated[NodeBytes, "Maximum size of the node of one record, and of the name of a worker."] = 128
    max_limit: Annotated[Positive, "Maximum number of records in one page, whatever `limit` asks for."] = 1000
    max_claim: Annotated[Positive, "Maximum number of jobs in one claim, and of seqs in one ack, nack or extend."] = (
        1000
    )
    max_watch_topics: Annotated[Positive, "Maximum number of topics in one watch session or WebSocket."] = 256
    max_consumers: Annotated[Positive, "Maximum number of named consumers of one topic."] = 10_000
    max_group_members: Annotated[Positive, "Maximum number of members of one consumer group."] = 1000
    #: Fixed by the protocol.
    max_meta_keys: ClassVar[int] = 64


#: A number of the protocol. Numbers above MAX_SEQ count as MAX_SEQ.
U64 = Annotated[int, Meta(ge=0, extra_json_schema={"maximum": (1 << 64) - 1})]

DEFAULT_LIMIT = 256
MAX_WAIT_MS = 30_000
#: The byte limit of a page: the default, and the maximum.
DEFAULT_PAGE_BYTES = 1 << 20
MAX_PAGE_BYTES = 8 << 20
MAX_IDEMPOTENCY_KEY_BYTES = 256
#: The defaults of a watch session: the byte limit of an event, and how long its streams may be silent.
DEFAULT_FRAME_BYTES = 262_144
DEFAULT_HEARTBEAT_MS = 15_000
MAX_HEARTBEAT_MS = 60_000
