"""Live invalidation: telling those who keep the result of a query that it may have changed.

Clients run their own queries. They say by keys what a result depends on, and wait; the server follows the changes in a
log and says when one of the keys may have been touched. It may say so too often, and never too seldom.
"""
