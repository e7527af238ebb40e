"""The Durable Streams protocol, /v1."""
