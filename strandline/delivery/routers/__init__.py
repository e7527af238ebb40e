"""Routers: every record that is appended to one log goes on into another."""

from strandline.delivery.routers.definition import Definition, Filter
from strandline.delivery.routers.errors import RouterCycle, RouterError, RouterFanIn, RouterRepointed
from strandline.delivery.routers.router import Router
from strandline.delivery.routers.routers import Routers

__all__ = [
    "Definition",
    "Filter",
    "Router",
    "RouterCycle",
    "RouterError",
    "RouterFanIn",
    "RouterRepointed",
    "Routers",
]
