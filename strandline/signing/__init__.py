"""Signing: authors of elements, signed requests, certificates and keyrings. Bytes in, bytes out; the package keeps no
state."""
