"""How hard an endpoint is used: requests at once, requests and tokens a minute, budget. Shared within the process."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

from selfevolve.sampling.endpoint import Budget, Endpoint

MINUTE = 60.0


class BudgetSpent(Exception):
    """The endpoint's budget is used up."""


class CallStopped(Exception):
    """The caller gave up while a request waited for its turn."""


class Window:
    """At most ``limit`` units in any ``span`` seconds; exact, by keeping what was admitted in the last span."""

    def __init__(self, limit: int, span: float = MINUTE, clock: Callable[[], float] = time.monotonic) -> None:
        """Start empty."""
        self.limit, self.span, self.clock = limit, span, clock
        self.entries: deque[list[float]] = deque()  # [time admitted, amount]
        self.total = 0.0

    def delay(self, amount: float) -> float:
        """Return the seconds until ``amount`` fits; more than the whole limit fits once the window is empty."""
        now = self.clock()
        while self.entries and self.entries[0][0] + self.span <= now:
            self.total -= self.entries.popleft()[1]
        if not self.entries or self.total + amount <= self.limit:
            return 0.0
        left = self.total
        for admitted, units in self.entries:
            left -= units
            if left + amount <= self.limit:
                return admitted + self.span - now
        return self.entries[-1][0] + self.span - now

    def add(self, amount: float) -> list[float]:
        """Admit ``amount`` now; the entry is handed to `settle` once the true amount is known."""
        entry = [self.clock(), float(amount)]
        self.entries.append(entry)
        self.total += amount
        return entry

    def settle(self, entry: list[float], amount: float) -> None:
        """Replace an admitted estimate by the true amount."""
        if entry[0] + self.span > self.clock():  # else it has left the window, or leaves it as it came
            self.total += amount - entry[1]
            entry[1] = float(amount)


class Permit:
    """One admitted request; its caller says what it really used."""

    def __init__(self) -> None:
        """Nothing is known yet: the estimate stands."""
        self.tokens: int | None = None  # prompt and completion tokens
        self.completion_tokens = 0


class Limiter:
    """Admits requests to one endpoint; all its methods may be called from any thread."""

    def __init__(
        self,
        concurrency: int,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        budget: Budget | None = None,
        span: float = MINUTE,
    ) -> None:
        """Start with nothing used; ``span`` is the length of a minute in seconds, shorter in tests."""
        self.slots = threading.BoundedSemaphore(concurrency)
        self.changed = threading.Condition()
        self.requests = Window(requests_per_minute, span) if requests_per_minute else None
        self.tokens = Window(tokens_per_minute, span) if tokens_per_minute else None
        self.budget = budget or Budget()
        self.requests_sent = 0
        self.completion_tokens = 0
        self.limits: dict[str, Any] = {}

    @contextmanager
    def admit(self, estimate: int, stop: threading.Event | None = None) -> Iterator[Permit]:
        """Wait for a free slot and for the rates, then hold the slot for the block.

        Args:
            estimate: tokens that the request may use at most; replaced by ``permit.tokens`` where the caller sets it.
            stop: set by a caller that gives up.

        Raises:
            BudgetSpent: nothing may be sent any more.
            CallStopped: ``stop`` was set.
        """
        while not self.slots.acquire(timeout=0.2 if stop else None):
            if stop and stop.is_set():
                raise CallStopped
        try:
            entry = self._enter(estimate, stop)
            permit = Permit()
            try:
                yield permit
            finally:
                self._leave(entry, permit)
        finally:
            self.slots.release()

    def _enter(self, estimate: int, stop: threading.Event | None) -> list[float] | None:
        with self.changed:
            while True:
                if stop and stop.is_set():
                    raise CallStopped
                self._check_budget()
                waits = [self.requests.delay(1) if self.requests else 0.0]
                waits.append(self.tokens.delay(estimate) if self.tokens else 0.0)
                if max(waits) <= 0:
                    break
                self.changed.wait(min(max(waits), 0.2))
            self.requests_sent += 1
            if self.requests:
                self.requests.add(1)
            return self.tokens.add(estimate) if self.tokens else None

    def _leave(self, entry: list[float] | None, permit: Permit) -> None:
        with self.changed:
            self.completion_tokens += permit.completion_tokens
            if entry is not None and self.tokens and permit.tokens is not None:
                self.tokens.settle(entry, permit.tokens)
                self.changed.notify_all()

    def _check_budget(self) -> None:
        if self.budget.requests is not None and self.requests_sent >= self.budget.requests:
            raise BudgetSpent(f"budget: {self.requests_sent} requests were sent, {self.budget.requests} are allowed")
        bound = self.budget.completion_tokens
        if bound is not None and self.completion_tokens >= bound:
            raise BudgetSpent(f"budget: {self.completion_tokens} completion tokens came, {bound} are allowed")


_shared: WeakValueDictionary[tuple[object, ...], Limiter] = WeakValueDictionary()
_shared_lock = threading.Lock()


def limiter_of(endpoint: Endpoint) -> Limiter:
    """Return the one limiter of the endpoint's addresses and key, which lives as long as any sampler of them.

    Raises:
        ValueError: a living sampler of the same addresses was given other limits.
    """
    key = (tuple(sorted(endpoint.base_urls)), endpoint.api_key_env)
    with _shared_lock:
        limiter = _shared.get(key)
        if limiter is None:
            limiter = Limiter(
                endpoint.concurrency, endpoint.requests_per_minute, endpoint.tokens_per_minute, endpoint.budget
            )
            limiter.limits = endpoint.limits
            _shared[key] = limiter
            return limiter
    differing = [
        f"{name} is {limiter.limits[name]} there and {value} here"
        for name, value in endpoint.limits.items()
        if limiter.limits[name] != value
    ]
    if differing:
        raise ValueError(
            f"{endpoint.base_urls[0]} already has a sampler with other limits ({'; '.join(differing)}); "
            "samplers of one address share its limits: give all the same"
        )
    return limiter
