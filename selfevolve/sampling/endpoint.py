"""What is known of an OpenAI-compatible endpoint before the first request: addresses, limits, budget.

Plain records without a client: reading a pool file needs no HTTP library. `HttpSampler` does the talking.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

RETRY_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
OWN_FIELDS = frozenset({"model", "messages", "prompt", "n", "temperature", "top_p", "seed", "stream"})


class Api(StrEnum):
    """Which route answers prompts; decided once, when the endpoint is described."""

    CHAT = "chat"  # POST /chat/completions: the server applies the model's chat template
    COMPLETIONS = "completions"  # POST /completions: the turns' contents, joined by blank lines, for base models


@dataclass(frozen=True)
class Budget:
    """What may be spent at an endpoint while a sampler of it lives; None: no bound."""

    requests: int | None = None  # requests sent, retries included; exact
    completion_tokens: int | None = None  # checked before each request: those under way may exceed it

    def __post_init__(self) -> None:
        """Refuse negative bounds."""
        for name in ("requests", "completion_tokens"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"budget.{name} is {value}; give 0 or more, or leave it out for no bound")


@dataclass(frozen=True)
class Endpoint:
    """One model behind one or more OpenAI-compatible addresses, and how hard it may be used.

    The limits hold for all samplers of the same addresses in the process together, and for all replicas together.
    """

    base_urls: tuple[str, ...]  # such as ("http://127.0.0.1:8000/v1",); several: replicas of one model, used evenly
    model: str  # as the server lists it under /models
    api: Api = Api.CHAT
    api_key_env: str | None = None  # the NAME of the environment variable that holds the key; None: no key
    concurrency: int = 64  # requests under way at once
    requests_per_minute: int | None = None  # in any 60 seconds; None: no limit
    tokens_per_minute: int | None = None  # prompt and completion tokens in any 60 seconds; None: no limit
    connect_seconds: float = 10.0
    read_seconds: float = 300.0  # silence of the server before an attempt is given up
    total_seconds: float = 1800.0  # all attempts and pauses of one prompt, from its first request on
    max_retries: int = 6  # failed requests in a row, after the first, without one new reply of a prompt
    retry_statuses: frozenset[int] = RETRY_STATUSES  # every other status of 300 or more fails the prompt at once
    backoff_seconds: float = 0.5  # pause after the first failure; doubled with each, up to backoff_max_seconds
    backoff_max_seconds: float = 30.0
    budget: Budget = field(default_factory=Budget)
    extra_body: Mapping[str, Any] = field(default_factory=dict)  # further fields of every request, never a secret
    max_tokens_field: str = "max_tokens"  # "max_completion_tokens" for servers that want it so
    send_seed: bool = True  # False for servers that refuse the field "seed"
    choices: int | None = None  # replies asked for in one request, at most; None: all; 1 for llama.cpp, see the docs

    def __post_init__(self) -> None:
        """Bring addresses and mappings into one form, and refuse what cannot work, with the remedy."""
        urls = (self.base_urls,) if isinstance(self.base_urls, str) else tuple(self.base_urls)
        urls = tuple(_checked_url(url) for url in urls)
        if not urls or len(set(urls)) < len(urls):
            raise ValueError(f"base_urls is {list(urls)}; name at least one address, and each once")
        if not self.model:
            raise ValueError("model is empty; give the name that the server lists under /models")
        object.__setattr__(self, "base_urls", urls)
        object.__setattr__(self, "api", Api(self.api))
        object.__setattr__(self, "retry_statuses", frozenset(self.retry_statuses))
        object.__setattr__(self, "extra_body", dict(self.extra_body))
        self._check_numbers()
        self._check_extra_body()

    def _check_numbers(self) -> None:
        for name in ("concurrency", "requests_per_minute", "tokens_per_minute", "choices"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; give at least 1")
        for name in ("connect_seconds", "read_seconds", "total_seconds"):
            value = getattr(self, name)
            if not (0 < value < math.inf):
                raise ValueError(f"{name} is {value}; a deadline is above 0 and finite")
        if self.max_retries < 0:
            raise ValueError(f"max_retries is {self.max_retries}; give 0 or more")
        if not 0 <= self.backoff_seconds <= self.backoff_max_seconds < math.inf:
            raise ValueError(
                f"backoff_seconds is {self.backoff_seconds} and backoff_max_seconds {self.backoff_max_seconds}; "
                "give 0 <= first <= max, both finite"
            )

    def _check_extra_body(self) -> None:
        taken = sorted(set(self.extra_body) & (OWN_FIELDS | {self.max_tokens_field}))
        if taken:
            raise ValueError(f"extra_body sets {', '.join(taken)}, which come from model and sampling; leave them out")
        try:
            json.dumps(self.extra_body, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"extra_body cannot be written as JSON ({error}); use plain values") from None

    def __hash__(self) -> int:
        """Hash by address and model; the mapping of further fields has no hash."""
        return hash((self.base_urls, self.model, self.api))

    @property
    def limits(self) -> dict[str, Any]:
        """What all samplers of these addresses share, by name."""
        names = ("concurrency", "requests_per_minute", "tokens_per_minute", "budget")
        return {name: getattr(self, name) for name in names}


def _checked_url(url: str) -> str:
    """Return the address without a trailing slash; refuse one that is no address or carries a secret."""
    parts = urlsplit(url)
    if parts.username or parts.password or parts.query or parts.fragment:
        shown = f"{parts.scheme}://{parts.hostname or ''}"
        raise ValueError(f"the address at {shown} carries a user, key or query; name the key's variable in api_key_env")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"base_urls holds {url!r}; an address reads like http://127.0.0.1:8000/v1")
    return url.rstrip("/")
