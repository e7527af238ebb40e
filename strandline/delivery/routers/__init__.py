"""Routers: copy every record that is appended to one log into another log."""

from strandline.delivery.routers.router import (
    Router,
    RouterCycle,
    RouterDefinition,
    RouterError,
    RouterFanIn,
    RouterFilter,
    RouterRepointed,
)
from strandline.delivery.routers.routers import Routers

__all__ = [
    "Router",
    "RouterCycle",
    "RouterDefinition",
    "RouterError",
    "RouterFanIn",
    "RouterFilter",
    "RouterRepointed",
    "Routers",
]
