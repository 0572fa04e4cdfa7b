"""From entries of a configuration to samplers: each model is loaded once, when it is first asked."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aske.errors import AskeError
from aske.play import Count, Seats
from aske.settings import Bench, Entry
from selfevolve.sampling import Prompt, Sampler, Sampling
from selfevolve.sampling.endpoint import Api, Budget, Endpoint

SamplerOf = Callable[[Entry], Sampler]
_PACKAGE = "package:"


class Samplers:
    """The samplers of a process by their entries; entries of one model share it."""

    def __init__(self, cache: str | None = None, check: bool = True) -> None:
        """Load nothing yet.

        Args:
            cache: a file that keeps the replies of endpoints; None: no cache.
            check: ask an endpoint, when it is first wanted, whether it serves the model.
        """
        self.cache, self.check = cache, check
        self._replies: Any = None  # the open cache
        self._made: dict[str, Sampler] = {}

    def __call__(self, entry: Entry) -> Sampler:
        """Return the sampler of an entry.

        Raises:
            AskeError: the model cannot be had, with what to do.
        """
        shared = entry.model_copy(update={"name": "", "sampling": None, "context": None, "ability": None})
        key = shared.model_dump_json()
        if key not in self._made:
            try:
                self._made[key] = self._make(entry)
            except (ValueError, OSError, ImportError) as error:
                if isinstance(error, AskeError):
                    raise
                raise AskeError(f"{entry.name}: {error}") from error
        return self._made[key]

    def _make(self, entry: Entry) -> Sampler:
        match entry.backend:
            case "transformers":
                from selfevolve.sampling.transformers_sampler import TransformersSampler

                return TransformersSampler(model_path(entry.model), name=entry.model, batch=entry.batch)
            case "vllm":
                from selfevolve.sampling.vllm_sampler import VllmSampler

                return VllmSampler(model_path(entry.model), name=entry.model, engine=entry.engine)
            case "http":
                return self._http(entry)

    def _http(self, entry: Entry) -> Sampler:
        from selfevolve.sampling.http_sampler import HttpSampler

        sampler = HttpSampler(endpoint_of(entry))
        if self.check:  # a wrong name or a dead server is told at once, not after the retries of each call
            sampler.check()
        if self.cache is None:
            return sampler
        from selfevolve.sampling.cache import CachedSampler, ReplyCache

        if self._replies is None:
            self._replies = ReplyCache(Path(self.cache))
        return CachedSampler(sampler, self._replies)


def endpoint_of(entry: Entry) -> Endpoint:
    """Return the endpoint that an entry describes; nothing is asked of it.

    Raises:
        AskeError: an address that is none, or a setting that no endpoint takes.
    """
    limits = entry.limits
    try:
        return Endpoint(
            entry.base_urls,
            entry.model,
            api=Api(entry.api),
            api_key_env=entry.api_key_env,
            concurrency=limits.concurrency,
            requests_per_minute=limits.requests_per_minute,
            tokens_per_minute=limits.tokens_per_minute,
            read_seconds=limits.silence,
            total_seconds=limits.deadline,
            max_retries=limits.retries,
            budget=Budget(limits.budget.requests, limits.budget.completion_tokens),
            extra_body=entry.extra_body,
            choices=entry.choices,
        )
    except ValueError as error:
        raise AskeError(f"{entry.name}: {error}") from None


def check_entries(bench: Bench) -> None:
    """Refuse entries that cannot work, as far as that is seen without loading or asking anything.

    Raises:
        AskeError: a folder, a package or a function that is not there, or an address that is none.
    """
    for entry in (*bench.askers, *bench.pool.solvers, bench.cross_checker()):
        if entry.backend == "http":
            endpoint_of(entry)
        else:
            model_path(entry.model)
    if bench.truth is not None:
        load_truth(bench.truth)


def model_path(model: str) -> str:
    """Return a hub id or folder as it is, and the folder that ``package:PACKAGE/FOLDER`` names.

    Raises:
        AskeError: the package is not installed or holds no such folder; a path with no folder at its end.
    """
    if not model.startswith(_PACKAGE):
        if (Path(model).is_absolute() or model.startswith(("./", "../", "~"))) and not Path(model).is_dir():
            raise AskeError(f"model is {model!r}, and there is no such folder", "Give a folder or a hub id.")
        return model
    package, _, folder = model.removeprefix(_PACKAGE).partition("/")
    try:
        spec = importlib.util.find_spec(package)
    except ImportError:
        spec = None
    places = list(spec.submodule_search_locations or []) if spec else []
    if not places:
        raise AskeError(f"model is {model!r}, but no package {package!r} is installed")
    path = Path(places[0]) / folder
    if not path.is_dir():
        raise AskeError(f"model is {model!r}, but {package} holds no folder {folder!r}")
    return str(path)


def load_truth(name: str) -> Callable[[str], Any]:
    """Return the function that ``MODULE:FUNCTION`` names.

    Raises:
        AskeError: there is none.
    """
    module, sign, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function, None) if sign else None
    except ImportError as error:
        raise AskeError(f"truth is {name!r}: {error}") from None
    if not callable(found):
        raise AskeError(f"truth is {name!r}; name a function as MODULE:FUNCTION, such as selfevolve.testbed:oracle")
    call: Callable[[str], Any] = found
    return call


# ------------------------------------------------------------ seats


def seats(bench: Bench, asker: Entry, sampler_of: SamplerOf) -> Seats:
    """Return who sits where when `asker` plays."""
    sampler = sampler_of(asker)
    context, count = asker_context(asker, sampler, seat_sampling(bench, "asker", asker))
    return Seats(
        sampler,
        {name: sampler_of(entry) for name, entry in bench.solvers.items()},
        sampler_of(bench.cross_checker()),
        context,
        count,
        side_by_side=all(entry.backend == "http" for entry in bench.pool.solvers),
        samplings={name: seat_sampling(bench, "boundary", entry) for name, entry in bench.solvers.items()},
    )


def seat_sampling(bench: Bench, seat: str, entry: Entry) -> Sampling:
    """Return how an entry is sampled in a seat: its own settings over the seat's."""
    return entry.sampling.over(getattr(bench.samplings, seat)).sampling()


def asker_context(asker: Entry, sampler: Any, sampling: Sampling) -> tuple[int | None, Count | None]:
    """Return the positions of the asker's context and how its tokens are counted, as far as either is known.

    In-process samplers count exactly and know their model's context; an entry's own ``context`` goes before.
    """
    ids = getattr(sampler, "prompt_ids", None)
    context = asker.context
    if context is None and hasattr(sampler, "prompt_limit"):
        limit = sampler.prompt_limit(sampling)
        context = None if limit is None else limit + sampling.max_tokens
    if ids is None:
        return context, None

    def count(prompt: Prompt) -> int:
        return len(ids([prompt])[0])

    return context, count
