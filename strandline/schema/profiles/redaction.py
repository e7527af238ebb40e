"""Values that are nobody's business: replaced before anything is stored, and said where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

REDACTED = "[REDACTED]"


def holds_secrets(value: Any, is_secret: Callable[[str], bool]) -> bool:
    """Whether some key in the value, at any depth, is a secret one. Most records have none and need no copy."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if type(found) is dict:
            for name, inner in found.items():
                if is_secret(name):
                    return True
                if type(inner) is dict or type(inner) is list:
                    waiting.append(inner)
        else:
            waiting.extend(inner for inner in found if type(inner) is dict or type(inner) is list)
    return False


def redact(value: Any, is_secret: Callable[[str], bool], path: str, found: list[str]) -> Any:
    """A copy without the values of secret keys; their dotted paths are added to ``found``."""
    if type(value) is dict:
        copy = {}
        for name, inner in value.items():
            where = f"{path}.{name}" if path else name
            if is_secret(name):
                found.append(where)
                copy[name] = REDACTED
            else:
                copy[name] = redact(inner, is_secret, where, found) if type(inner) in (dict, list) else inner
        return copy
    if type(value) is list:
        return [redact(inner, is_secret, f"{path}.{index}", found) for index, inner in enumerate(value)]
    return value
