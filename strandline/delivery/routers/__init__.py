"""Routers: every record that is appended to one log is copied into another."""

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
