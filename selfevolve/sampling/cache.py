"""Replies kept on disk by what was asked, and a sampler that asks only for what is missing (ground floor).

A reply's address is the hash of (identity of the model, messages, sampling without n, place, number of the sample). The
seed is part of the sampling: another seed asks for other draws. The place is the key where the caller gives one, else
how many equal prompts stand before it in the list: equal prompts of one call get draws of their own, and a prompt finds
its replies wherever it stands. At temperature 0 neither seed, place nor number matters. Axis legend:
``[prompt][sample]``.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from selfevolve.sampling._derive import derive
from selfevolve.sampling.protocol import FinishReason, KeyedSampler, Prompt, Reply, Sampler, Sampling

_KEPT = (FinishReason.STOP, FinishReason.LENGTH)  # a failure is asked for again
_LAYOUT = 1  # of the file; part of its header


@runtime_checkable
class StreamingSampler(KeyedSampler, Protocol):
    """A keyed sampler that hands over each prompt's replies as they come, such as `HttpSampler`."""

    def sample_each(
        self, prompts: Sequence[Prompt], sampling: Sampling, keys: Sequence[int]
    ) -> Iterator[tuple[int, list[Reply]]]:
        """Yield (index of the prompt, its replies), in any order."""
        ...


@dataclass(frozen=True)
class _Unit:
    """What is sampled: a prompt at a place. Equal units have equal replies."""

    prompt: Prompt
    place: str  # part of the address
    key: int = field(compare=False)  # what a keyed sampler's draws hang on


class ReplyCache:
    """A file of replies by address (SQLite); several threads and processes of one machine may use it at once.

    What was put is there after a kill of the process at any moment. A power cut may lose the last replies, never the
    file. The file must lie on a local disk.
    """

    def __init__(self, path: str | Path) -> None:
        """Open or make the file.

        Raises:
            ValueError: the file is something else.
        """
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(self.path, timeout=60.0, check_same_thread=False, isolation_level=None)
        try:
            self._prepare()
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise ValueError(f"{path} is no cache of replies ({error}); move it away or name another file") from None
        except ValueError:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        run = self._connection.execute
        run("BEGIN IMMEDIATE")  # another process may be making the file at the same time
        (layout,) = run("PRAGMA user_version").fetchone()
        (tables,) = run("SELECT count(*) FROM sqlite_master").fetchone()
        if layout != _LAYOUT and (layout or tables):
            raise ValueError(f"{self.path} has layout {layout}, {_LAYOUT} is read here; name another file")
        run("CREATE TABLE IF NOT EXISTS replies (address TEXT PRIMARY KEY, reply TEXT NOT NULL)")
        run(f"PRAGMA user_version={_LAYOUT}")
        run("COMMIT")
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=NORMAL")

    def __len__(self) -> int:
        """Count the replies."""
        with self._lock:
            count: int = self._connection.execute("SELECT count(*) FROM replies").fetchone()[0]
        return count

    def get(self, addresses: Iterable[str]) -> dict[str, Reply]:
        """Return the replies that are there, marked as cached."""
        found: dict[str, Reply] = {}
        left = iter(dict.fromkeys(addresses))
        while some := tuple(islice(left, 500)):
            marks = ",".join("?" * len(some))
            with self._lock:
                rows = self._connection.execute(
                    f"SELECT address, reply FROM replies WHERE address IN ({marks})", some
                ).fetchall()
            found.update((address, _read(text)) for address, text in rows)
        return found

    def put(self, replies: Mapping[str, Reply]) -> None:
        """Keep the replies that ended by themselves or at the limit; the first one at an address stays."""
        rows = [(address, _write(reply)) for address, reply in replies.items() if reply.finish_reason in _KEPT]
        if not rows:
            return
        with self._lock, closing(self._connection.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                cursor.executemany("INSERT OR IGNORE INTO replies VALUES (?, ?)", rows)
            except BaseException:
                cursor.execute("ROLLBACK")
                raise
            cursor.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()


class CachedSampler:
    """Answer from the cache, and from another sampler what is missing there.

    Samples are numbered. A call with n = 5 after one with n = 3 finds samples 0 to 2 and asks for 3 and 4: a keyed
    sampler (all of this package) by their numbers, so the replies are those of a call for five at once; any other
    sampler under a seed of their own, so no draw comes twice. An empty cache changes no reply.
    """

    def __init__(self, inner: Sampler, cache: ReplyCache, identity: str | None = None) -> None:
        """Keep both.

        Args:
            inner: who answers what is missing.
            cache: where replies are kept.
            identity: what a reply depends on beside prompt and sampling: the weights, by a name that changes with them.
                None: ``inner.identity``, which `HttpSampler` has.

        Raises:
            ValueError: no identity is known.
        """
        known = identity or getattr(inner, "identity", None)
        if not known:
            raise ValueError(
                f"{inner.name!r} does not say which weights answer; "
                "pass identity=, a name that changes with the weights"
            )
        self.inner, self.cache, self.identity = inner, cache, str(known)
        self.name = inner.name

    def address(self, prompt: Prompt, sampling: Sampling, sample: int, place: str = "0") -> str:
        """Return where the reply of one numbered sample is kept."""
        greedy = sampling.temperature == 0
        what = {
            "identity": self.identity,
            "messages": [[message.role, message.content] for message in prompt],
            "temperature": float(sampling.temperature),
            "top_p": float(sampling.top_p),
            "top_k": sampling.top_k,
            "max_tokens": sampling.max_tokens,
            "draw": None if greedy else [sampling.seed, place, sample],
        }
        return sha256(json.dumps(what, sort_keys=True).encode("ascii")).hexdigest()

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[list[Reply]]:
        """Return ``sampling.n`` replies for each prompt, in order; axes ``[prompt][sample]``."""
        seen: Counter[Prompt] = Counter()
        units = []
        for index, prompt in enumerate(prompts):
            units.append(_Unit(prompt, str(seen[prompt]), index))
            seen[prompt] += 1
        return self._gather(units, sampling)

    def sample_keyed(self, prompts: Sequence[Prompt], sampling: Sampling, keys: Sequence[int]) -> list[list[Reply]]:
        """Return replies as `sample` does; draws hang on a key a prompt in place of its position."""
        return self._gather(
            [_Unit(prompt, f"key {key}", key) for prompt, key in zip(prompts, keys, strict=True)], sampling
        )

    def _gather(self, units: list[_Unit], sampling: Sampling) -> list[list[Reply]]:
        greedy = sampling.temperature == 0
        numbers = [0] if greedy else range(sampling.first, sampling.first + sampling.n)
        if greedy:
            units = [replace(unit, place="0") for unit in units]
        addresses = {unit: [self.address(unit.prompt, sampling, i, unit.place) for i in numbers] for unit in units}
        found = self.cache.get(address for row in addresses.values() for address in row)
        for (start, length), asked in _stretches(addresses, found).items():
            some = replace(sampling, first=numbers[start], n=length)
            whole = len(asked) == len(addresses)
            for index, replies in self._ask(asked, some, [addresses[unit][start] for unit in asked], whole):
                fresh = dict(zip(addresses[asked[index]][start : start + length], replies, strict=True))
                self.cache.put(fresh)
                found.update(fresh)
        rows = [[found[address] for address in addresses[unit]] for unit in units]
        return [row * sampling.n for row in rows] if greedy else rows

    def _ask(
        self, units: list[_Unit], sampling: Sampling, addresses: list[str], whole: bool
    ) -> Iterator[tuple[int, list[Reply]]]:
        """Yield each unit's replies, at once where the inner sampler can, so that a kill loses little.

        Args:
            units: what lacks samples.
            sampling: with the first number that is missing, and how many.
            addresses: of each unit's first missing sample.
            whole: these are all units of the call.
        """
        prompts, keys = [unit.prompt for unit in units], [unit.key for unit in units]
        if isinstance(self.inner, StreamingSampler):
            yield from self.inner.sample_each(prompts, sampling, keys)
        elif isinstance(self.inner, KeyedSampler):
            yield from enumerate(self.inner.sample_keyed(prompts, sampling, keys))
        else:
            if sampling.first or not whole:
                sampling = replace(sampling, seed=derive(sampling.seed, *addresses), first=0)
            yield from enumerate(self.inner.sample(prompts, sampling))


def _stretches(addresses: Mapping[_Unit, list[str]], found: Mapping[str, Reply]) -> dict[tuple[int, int], list[_Unit]]:
    """Return the units that lack samples, by (place in the row, length) of each unbroken stretch that is missing."""
    stretches: dict[tuple[int, int], list[_Unit]] = {}
    for unit, row in addresses.items():
        start = 0
        while start < len(row):
            if row[start] in found:
                start += 1
                continue
            end = next((i for i in range(start, len(row)) if row[i] in found), len(row))
            stretches.setdefault((start, end - start), []).append(unit)
            start = end
    return stretches


def _write(reply: Reply) -> str:
    kept: dict[str, Any] = {
        "text": reply.text,
        "finish_reason": reply.finish_reason.value,
        "prompt_tokens": reply.prompt_tokens,
    }
    kept |= {"completion_tokens": reply.completion_tokens, "seconds": reply.seconds, "seed": reply.seed}
    return json.dumps(kept)


def _read(text: str) -> Reply:
    kept = json.loads(text)
    return Reply(**(kept | {"finish_reason": FinishReason(kept["finish_reason"])}), cached=True)
