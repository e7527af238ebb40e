"""Delivery: wake-ups, queues, routers, watch streams, subscriptions, live invalidation."""
