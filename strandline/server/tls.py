"""TLS: the certificate of the server, which is read again when its file changes."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

log = logging.getLogger(__name__)


class BadCertificate(Exception):
    """The certificate or its key cannot be used. The message names the files."""


class Certificate:
    """``certificate`` is a PEM file with the certificate and its chain, ``key`` a PEM file with its unencrypted private
    key. Raises :class:`BadCertificate`."""

    def __init__(self, certificate: str, key: str) -> None:
        self._certificate = certificate
        self._key = key
        #: The state of the files when they were last read, whether or not they could be used.
        self._seen = self._look()
        self.context = self._load()

    def refresh(self) -> bool:
        """If the files have changed, use them for new connections; returns whether that is so. If they cannot be used,
        the server keeps its certificate, because the other file may be about to change."""
        found = self._look()
        if found == self._seen:
            return False
        self._seen = found
        try:
            self._load()
            self.context.load_cert_chain(self._certificate, self._key, password="")
        except (BadCertificate, OSError) as error:
            log.error("the new TLS certificate is not used, the server keeps the old one: %s", error)
            return False
        log.info("the TLS certificate was read again")
        return True

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            # Without a password, OpenSSL would ask for one at the terminal.
            context.load_cert_chain(self._certificate, self._key, password="")
        except (OSError, ValueError) as error:
            raise BadCertificate(
                f"cannot use tls_certificate {self._certificate} with tls_key {self._key}: {error}; expected PEM files "
                "of a certificate with its chain, and of its unencrypted private key"
            ) from None
        return context

    def _look(self) -> tuple[object, ...]:
        return tuple(_state(Path(path)) for path in (self._certificate, self._key))


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
