"""The server: one process, one event loop, two lanes to the same handlers.

A program that declares tables or collections starts it with :func:`serve`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strandline.server.embedded import serve

__all__ = ["serve"]


def __getattr__(name: str) -> Any:
    # The HTTP stack is imported only when it is needed: most users of this package need only a part of it.
    if name == "serve":
        from strandline.server.embedded import serve

        return serve
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
