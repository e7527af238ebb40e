"""The profile of a stream that has declared none: records are whatever they are."""

from __future__ import annotations

from typing import Any

from strandline.schema.profiles.options import Options
from strandline.schema.profiles.profile import Profile


class Generic(Profile):
    kind = "generic"
    needs_json = False

    def document(self) -> dict[str, Any]:
        return {"kind": "generic"}

    @classmethod
    def parse(cls, options: Options) -> Generic:
        options.allow("kind")
        return GENERIC


GENERIC = Generic()
