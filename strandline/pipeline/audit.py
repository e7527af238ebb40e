"""Auditing whole logs on Spark: whether what is stored is sound, in order, complete and by whom it says, and whether
the lake agrees with it.

``run`` puts it together. ``segments``, ``records`` and ``lakes`` look at one thing each, in tasks; ``judging`` and
``comparing`` make something of what was seen; ``digests`` tells records apart without showing them; ``report`` is what
comes of it.
"""
