"""The tuple language for tags: ``["tag","Eq","a"]``, ``["tag","Glob","a*"]``, or a bare string."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from strandline.service.problems import invalid

_GLOB = r"^[^*]*\*$"
#: A match in a request's body. ``parse_match`` reports errors; the schema here is documentation for authors of clients.
MatchField = Annotated[
    Any,
    Meta(
        extra_json_schema={
            "anyOf": [
                {"type": "null"},
                {"type": "string", "pattern": r"^([^*]*\*|.*[^*]|)$"},
                {
                    "type": "array",
                    "prefixItems": [{"const": "tag"}, {"const": "Eq"}, {"type": "string"}],
                    "items": False,
                    "minItems": 3,
                },
                {
                    "type": "array",
                    "prefixItems": [{"const": "tag"}, {"const": "Glob"}, {"type": "string", "pattern": _GLOB}],
                    "items": False,
                    "minItems": 3,
                },
            ]
        }
    ),
]


class Match(NamedTuple):
    """An exact key, or a prefix of keys."""

    key: str | None
    prefix: str | None

    def accepts(self, key: str | None) -> bool:
        if key is None:
            return False
        return key == self.key if self.prefix is None else key.startswith(self.prefix)

    def json(self) -> list[str]:
        return ["tag", "Eq", self.key or ""] if self.prefix is None else ["tag", "Glob", self.prefix + "*"]


def parse_match(raw: Any, what: str = "match") -> Match | None:
    """None for None. A string without a star at its end is exact."""
    if raw is None:
        return None
    if isinstance(raw, str):
        return _glob(raw, what) if raw.endswith("*") else Match(raw, None)
    if not (isinstance(raw, list) and len(raw) == 3 and raw[0] == "tag" and isinstance(raw[2], str)):
        raise invalid(f'{what} must be ["tag", "Eq" or "Glob", text] or a string')
    if raw[1] == "Eq":
        return Match(raw[2], None)
    if raw[1] == "Glob":
        return _glob(raw[2], what)
    raise invalid(f"{what}: the operator must be Eq or Glob, not {raw[1]!r}")


def _glob(pattern: str, what: str) -> Match:
    if not pattern.endswith("*") or "*" in pattern[:-1]:
        raise invalid(f"{what}: a Glob must be a prefix followed by one *, not {pattern!r}")
    return Match(None, pattern[:-1])
