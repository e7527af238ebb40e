"""The Python client, for threads (``Client``) and for event loops (``AsyncClient``)."""

from strandline.client.asynchronous.client import AsyncClient
from strandline.client.synchronous.client import Client

__all__ = ["AsyncClient", "Client"]
