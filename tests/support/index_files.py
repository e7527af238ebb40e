"""Index files of a few records, without a log."""

from __future__ import annotations

import pyarrow as pa

from strandline.query.config import SearchConfig
from strandline.query.index_files.builder import Made, Origin, build
from support.searched_log import CONFIG


def made_of(payloads: list[bytes], first: int = 1, config: SearchConfig = CONFIG) -> Made:
    origin = Origin(directory="d", log="log", epoch=3, first=first, last=first + len(payloads), versions=((1, 1),))
    seqs = pa.array(range(first, first + len(payloads)), pa.int64())
    return build(origin, config, [pa.record_batch({"seq": seqs, "data": pa.array(payloads, pa.binary())})])
