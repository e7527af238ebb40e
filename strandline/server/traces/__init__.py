"""Traces of the server itself: which requests have one, and the OpenTelemetry collector that gets their spans."""
