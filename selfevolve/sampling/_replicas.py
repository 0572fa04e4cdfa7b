"""Which of several replicas gets the next request: the one with the fewest under way; failed ones rest."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Replicas:
    """The addresses of one model; all methods may be called from any thread."""

    def __init__(self, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with every replica awake and idle."""
        self.clock = clock
        self.lock = threading.Lock()
        self.under_way = [0] * count
        self.served = [0] * count  # requests ever given to each
        self.rest_until = [0.0] * count

    def rest_left(self) -> float:
        """Return the seconds until some replica is awake; 0.0 where one is."""
        return max(0.0, min(self.rest_until) - self.clock())

    def take(self, avoid: int | None = None) -> int:
        """Choose a replica and count a request as under way there.

        Awake ones come first, then others than ``avoid`` (where the request failed last), then the least used.
        """
        with self.lock:
            now = self.clock()

            def rank(i: int) -> tuple[float, bool, int, int]:
                return max(0.0, self.rest_until[i] - now), i == avoid, self.under_way[i], self.served[i]

            chosen = min(range(len(self.under_way)), key=rank)
            self.under_way[chosen] += 1
            self.served[chosen] += 1
            return chosen

    def give_back(self, replica: int) -> None:
        """End a request."""
        with self.lock:
            self.under_way[replica] -= 1

    def rest(self, replica: int, seconds: float) -> None:
        """Let the replica take no further request for some seconds."""
        with self.lock:
            self.rest_until[replica] = max(self.rest_until[replica], self.clock() + seconds)
