"""The sampler over servers of the run: it starts them, waits for them, restarts a dead one once, and stops them.

Axis legend: ``[prompt][sample]``.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from selfevolve.config.backends import Backend
from selfevolve.sampling import FinishReason, Prompt, Reply, Sampling
from selfevolve.sampling.endpoint import Api, Endpoint
from selfevolve.sampling.http_sampler import HttpSampler
from selfevolve.sampling.transformers_sampler import Formatter, PromptFormat
from selfevolve.sampling.weights import warn_remote_code
from selfevolve.serving.process import ServerError, ServerProcess, stop_all

logger = logging.getLogger(__name__)

CHOICES = 16  # replies asked for in one request: a response comes whole, and replicas share what many requests bring
RETRIES = 5  # of one request: with their pauses, long enough for a dying server to be gone
BACKOFF = 0.2  # seconds before the first retry
PROBE = 10.0  # seconds for an answer to the question whether a server is there
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0  # seconds between two such questions
TELL = 60.0  # seconds between two lines that say that a server is still awaited
FAILED = (FinishReason.TIMEOUT, FinishReason.ERROR)

_made: weakref.WeakSet[ServedSampler] = weakref.WeakSet()  # those of this process


class ServedSampler:
    """Answer prompts with a model on servers that this sampler starts; a `KeyedSampler`.

    A reply is a function of prompt, sampling, key and sample index, so a restart changes none. The prompt format is
    that of `TransformersSampler`: the tokenizer's chat template, where it has one, else plain.
    """

    def __init__(
        self,
        backend: Backend,
        model: str,
        name: str,
        log: Path,
        *,
        dtype: str,
        max_prompt_tokens: int | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        """Decide the prompt format; `start` starts the servers, and so does the first call.

        Args:
            backend: of kind "server".
            model: folder or hub id.
            name: shown in records and messages.
            log: file for the server's output; with several replicas each has its own, numbered.
            dtype: arithmetic, "float32" or "bfloat16".
            max_prompt_tokens: a longer prompt is answered by an ERROR reply, as in process.
            trust_remote_code: run code that the model's repository carries.
        """
        from transformers import AutoTokenizer

        if trust_remote_code:
            warn_remote_code(model)
        tokenizer: Any = AutoTokenizer.from_pretrained(model, trust_remote_code=trust_remote_code)
        self.backend, self.model, self.name = backend, model, name
        self.formatter = Formatter(tokenizer)
        self.api = Api.CHAT if self.formatter.format is PromptFormat.CHAT else Api.COMPLETIONS
        self.max_prompt_tokens = max_prompt_tokens
        self.processes = [
            ServerProcess(
                backend,
                model,
                name if backend.replicas == 1 else f"{name}, replica {i + 1}",
                log if backend.replicas == 1 else log.with_name(f"{log.stem}-{i + 1}{log.suffix}"),
                dtype=dtype,
                trusted=trust_remote_code,
                replica=i,
            )
            for i in range(backend.replicas)
        ]
        weakref.finalize(self, stop_all, self.processes)  # at exit, too
        _made.add(self)
        self.restarts = 0  # of all replicas together
        self._restarted: set[int] = set()  # replicas that have died once
        self._http: HttpSampler | None = None
        self._awaited = False  # some replica was started and has not answered yet
        self._begun = 0.0  # `time.monotonic` at the last start

    def prepare(self) -> None:
        """Start the servers now, unless others on the same devices are on their way: then the first call does."""
        if not self._rivals():
            self.start()

    def start(self) -> None:
        """Start the servers, where they were not, and do not wait for them.

        Others that start on the same devices come up first: engines that take their share of the memory at one time
        misjudge what is left.
        """
        if self._begun:
            return
        for other in self._rivals():
            other._ready()
        self._begun = time.monotonic()
        self._awaited = True
        for process in self.processes:
            process.start()

    def check(self) -> None:
        """See that the servers are well, where they were started: restart those that are not, and wait for them.

        Raises:
            ServerError: one died for the second time, or does not come up.
        """
        if not self._begun:
            return
        if self._http is not None and not self._awaited:
            try:
                self._http.check(PROBE)
            except ValueError as error:
                logger.warning("%s: not well before the stage: %s", self.name, error)
                self._stop_silent()
        self._mend()
        self._ready()

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[list[Reply]]:
        """Return ``sampling.n`` replies for each prompt, in order; axes ``[prompt][sample]``.

        Raises:
            ServerError: a server died for the second time, or does not come up.
        """
        return self.sample_keyed(prompts, sampling, range(len(prompts)))

    def sample_keyed(self, prompts: Sequence[Prompt], sampling: Sampling, keys: Sequence[int]) -> list[list[Reply]]:
        """Return replies as `sample` does; draws hang on a key a prompt in place of its position."""
        if not prompts:
            return []
        refused = self._refusals(prompts)
        parts = _parts(sampling)
        missing = [(i, part) for i in range(len(prompts)) if i not in refused for part in range(len(parts))]
        got: dict[tuple[int, int], list[Reply]] = {}
        while missing:
            self.start()
            self._mend()
            http, restarts = self._ready(), self.restarts
            lost = set()
            asked = http.sample_each(
                [prompts[i] for i, _ in missing], [parts[part] for _, part in missing], [keys[i] for i, _ in missing]
            )
            with closing(asked):
                for index, replies in asked:
                    got[missing[index]] = replies
                    if any(reply.finish_reason in FAILED for reply in replies):
                        lost.add(missing[index])
                    self._mend()
                    if self.restarts > restarts and len(self.processes) == 1:
                        break  # nobody is there to answer the others
            # what failed while a server was away is asked again; what failed at servers that live is told as it is
            away = self.restarts > restarts
            missing = [place for place in missing if away and (place not in got or place in lost)]
        return [
            refused[i] * sampling.n if i in refused else [r for part in range(len(parts)) for r in got[i, part]]
            for i in range(len(prompts))
        ]

    def close(self) -> None:
        """Stop the servers and close the connections; a later call would start them anew."""
        self._disconnect()
        stop_all(self.processes)
        self._begun, self._awaited = 0.0, False
        self._restarted.clear()

    def _disconnect(self) -> None:
        if self._http is not None:
            self._http.close()
        self._http = None

    @property
    def ready(self) -> bool:
        """True once all servers have answered since their last start."""
        return bool(self._begun) and not self._awaited

    def _rivals(self) -> list[ServedSampler]:
        """Return the others that are starting on devices of these servers; without a list a server may take all."""
        mine = set(self.backend.devices)
        return [
            other
            for other in list(_made)
            if other is not self
            and other._awaited
            and (not mine or not other.backend.devices or mine & set(other.backend.devices))
        ]

    def _mend(self) -> None:
        """Start each replica that died again, on its port and without waiting; the second time is an error."""
        for number, process in enumerate(self.processes):
            if process.alive or (self._awaited and self._http is None):
                continue
            if number in self._restarted:
                raise process.ended("died again, after one restart")
            logger.warning("%s: the server died; it is restarted once. Its last lines:\n%s", self.name, process.tail())
            self._restarted.add(number)
            self.restarts += 1
            process.stop()
            self._begun, self._awaited = time.monotonic(), True
            process.start()

    def _ready(self) -> HttpSampler:
        """Wait until all replicas answer.

        Raises:
            ServerError: one ended, or ``start_seconds`` passed; with the last lines of its log.
        """
        pause, told, said = FIRST_PAUSE, time.monotonic(), ""
        while self._awaited or self._http is None:
            for number, process in enumerate(self.processes):
                if process.alive:
                    continue
                if not process.choose_another_port():
                    again = ", after one restart" if number in self._restarted else ""
                    raise process.ended(f"ended before it answered{again}")
                self._disconnect()
            self._http = self._http or self._connected()
            left = self.backend.start_seconds - (time.monotonic() - self._begun)
            try:
                self._http.check(min(PROBE, max(left, FIRST_PAUSE)))
            except ValueError as error:
                said = str(error)
            else:
                # another program may hold the port and answer, and ours be about to end for it
                if all(process.alive for process in self.processes):
                    self._awaited = False
                    logger.info("%s: serves after %.0f s", self.name, time.monotonic() - self._begun)
                    break
            now = time.monotonic()
            if now - self._begun > self.backend.start_seconds:
                raise self._late(said)
            if now - told > TELL:
                logger.info("%s: still waiting for the server, %.0f s so far", self.name, now - self._begun)
                told = now
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return self._http

    def _connected(self) -> HttpSampler:
        seconds = self.backend.request_seconds
        endpoint = Endpoint(
            tuple(process.url for process in self.processes),
            self.model,
            self.api,
            concurrency=self.backend.concurrency,
            read_seconds=seconds,
            total_seconds=seconds,
            max_retries=RETRIES,
            backoff_seconds=BACKOFF,
            extra_body={} if self.backend.command else self._vllms_own(),
        )
        return HttpSampler(endpoint, self.name)

    def _vllms_own(self) -> dict[str, Any]:
        """Return the fields of a request that vLLM knows beside OpenAI's."""
        end = self.formatter.turn_end
        counts: dict[str, Any] = {"return_token_ids": True}  # each reply's own number of tokens
        return counts if end is None else counts | {"stop_token_ids": [end]}

    def _late(self, said: str) -> ServerError:
        tails = "\n".join(f"{process.log}:\n{process.tail()}" for process in self.processes)
        self.close()
        return ServerError(
            f"{self.name}: the server did not answer within start_seconds = {self.backend.start_seconds:g} ({said}); "
            f"the last lines of {tails}",
            "raise start_seconds, or mend what the log tells; then go on with `selfevolve resume`",
        )

    def _stop_silent(self) -> None:
        """Stop each replica that does not answer, so that it is started again as a dead one is."""
        whole = self._connected().endpoint
        for process in self.processes:
            one = HttpSampler(replace(whole, base_urls=(process.url,)), process.name)
            try:
                one.check(PROBE)
            except ValueError:
                process.stop()
            finally:
                one.close()

    def _refusals(self, prompts: Sequence[Prompt]) -> dict[int, list[Reply]]:
        """Return one failed reply for each prompt that is empty or too long, as in process."""
        found = {}
        for i, ids in enumerate(self.formatter.ids(prompts)):
            limit = self.max_prompt_tokens
            reason = None
            if not ids:
                reason = "the prompt has no tokens; give it at least one"
            elif limit is not None and len(ids) > limit:
                reason = f"the prompt has {len(ids)} tokens, at most {limit} fit; shorten it or raise the limit"
            if reason is not None:
                found[i] = [Reply("", FinishReason.ERROR, len(ids), 0, reason)]
        return found


def _parts(sampling: Sampling) -> list[Sampling]:
    """Return the draw in parts of `CHOICES` samples; greedy replies are copies of one."""
    if sampling.temperature == 0:
        return [sampling]
    starts = range(0, sampling.n, CHOICES)
    return [replace(sampling, first=sampling.first + s, n=min(CHOICES, sampling.n - s)) for s in starts]
