"""The tables that the tests of the module use. All rooms belong to ``owner``."""

from __future__ import annotations

from typing import Annotated

import msgspec

from strandline.tables import make_log


class Note(msgspec.Struct, forbid_unknown_fields=True):
    text: Annotated[str, msgspec.Meta(max_length=40)]
    mood: str = "calm"


def room(name: str) -> dict[str, object]:
    return {"userId": "owner"}


note = make_log(
    "note", parent="room", schema=Note, soft_delete=True, pub=True, search="text", parent_row=room, feed=True
)
scarce = make_log("scarce", parent="room", schema=Note, rate_limit=1, pub=True, parent_row=room)
