"""A table with search, soft delete and a feed: what the server of the matrix of logs and operations is started with."""

from __future__ import annotations

import msgspec

from strandline.tables import make_log


class Item(msgspec.Struct):
    text: str


item = make_log("item", parent="list", schema=Item, soft_delete=True, search="text", feed=True)
