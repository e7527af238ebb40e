"""Subscriptions of the streams protocol, under /v1/stream/__ds."""
