"""The topics protocol, /v0."""
