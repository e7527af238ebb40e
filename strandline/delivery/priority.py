"""How urgent a log is. It decides who is served first when not everybody can be at once, and nothing else.

A manual priority is taken as it is. Without one, a log that was consumed a moment ago counts like a manual 500, and
half of that after every half-life. Whatever has to wait becomes more urgent with every second of it.
"""

from __future__ import annotations

#: A manual priority beyond this counts as this.
MANUAL_LIMIT = 1000
#: What a log that was consumed just now is worth.
RECENT_MAX = 500
HALF_LIFE_MS = 30_000
#: A log that nobody has looked at for so long is worth nothing.
FORGOTTEN_AFTER_MS = 300_000
#: What waiting adds per second, and for how long it goes on adding.
AGE_PER_SECOND = 100
AGE_LIMIT_MS = 10_000

#: 500 · 2^(-x) in steps of a 64th of the half-life's life, so that nothing is raised to a power on the way.
_STEP_MS = FORGOTTEN_AFTER_MS // 256
_DECAY = [RECENT_MAX * 2 ** (-(step * _STEP_MS) / HALF_LIFE_MS) for step in range(258)]


def recency(idle_ms: int) -> int:
    """What a log is worth that was last consumed so long ago."""
    if idle_ms <= 0:
        return RECENT_MAX
    if idle_ms >= FORGOTTEN_AFTER_MS:
        return 0
    step, rest = divmod(idle_ms, _STEP_MS)
    low, high = _DECAY[step], _DECAY[step + 1]
    return round(low + (high - low) * rest / _STEP_MS)


def base_priority(manual: int | None, automatic: bool, consumed_at: int | None, now: int) -> int:
    """The priority of a log by itself; ``manual`` replaces what its use would give it."""
    if manual is not None:
        return max(-MANUAL_LIMIT, min(MANUAL_LIMIT, manual))
    if not automatic or consumed_at is None:
        return 0
    return recency(now - consumed_at)


def age_boost(waited_ms: int) -> int:
    """What having waited adds."""
    return AGE_PER_SECOND * max(0, min(waited_ms, AGE_LIMIT_MS)) // 1000
