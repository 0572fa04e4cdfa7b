"""When a failed request is tried again: Retry-After, and exponential back-off with seeded jitter."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def retry_after_seconds(value: str | None, now: datetime | None = None) -> float | None:
    """Return the seconds that a ``Retry-After`` header asks for (RFC 9110, 10.2.3), or None where it says nothing.

    Args:
        value: a number of seconds (fractions are accepted) or an HTTP date; a date in the past is 0.
        now: the time that a date is compared with; None: now.
    """
    if value is None:
        return None
    text = value.strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            when = parsedate_to_datetime(text)
        except ValueError:
            return None
        if when.tzinfo is None:  # "-0000": no zone given
            when = when.replace(tzinfo=UTC)
        return max(0.0, (when - (now or datetime.now(UTC))).total_seconds())
    return seconds if 0 <= seconds < float("inf") else None


def backoff(first: float, largest: float, failures: int, seed: int) -> float:
    """Return the pause after the given number of failures in a row (1 or more), in seconds.

    The pause doubles with each failure up to ``largest``; half of it is drawn from the seed, so that callers that
    failed together do not come back together.
    """
    full = min(largest, first * 2.0 ** min(failures - 1, 60))
    return full * random.Random(f"{seed}/{failures}").uniform(0.5, 1.0)
