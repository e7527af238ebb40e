"""A proxy that does to connections what networks do: cut them off anywhere, and let answers get lost."""

from __future__ import annotations

import socket
import threading
from collections import deque
from contextlib import suppress
from urllib.parse import urlsplit

PATIENCE_SECONDS = 30.0


class CuttingProxy:
    """``faults`` has what is to become of the next connections, one by one: so many bytes of what the server says get
    through, and then it is cut. Those for which nothing is said are left alone. The server always gets everything."""

    def __init__(self, url: str, *faults: int) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname, parts.port)
        self.faults = deque(faults)
        #: How many connections there were so far.
        self.connections = 0
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def vanish(self) -> None:
        """Cut all connections, and refuse new ones."""
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            limit = self.faults.popleft() if self.faults else None
            server = socket.create_connection(self._server, PATIENCE_SECONDS)
            self._open += [client, server]
            threading.Thread(target=self._pass, args=(client, server, None), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, limit), daemon=True).start()

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket, limit: int | None) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if limit is not None:
                    data, limit = data[:limit], limit - len(data)
                target.sendall(data)
                if limit is not None and limit <= 0:
                    break
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
