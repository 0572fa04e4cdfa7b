"""The sampler over HTTP: any OpenAI-compatible server answers prompts (ground floor: imports nothing of ours).

One prompt is one job: a request for all its replies, and as many further ones as it takes to get what is missing.
Whatever a server does, a job ends with the replies asked for; those that did not come are ERROR or TIMEOUT with the
reason. Axis legend: ``[prompt][sample]``.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue

from selfevolve.sampling._completions import ROUTES, Answer, quote, read_answer, request_body
from selfevolve.sampling._derive import draw_seed
from selfevolve.sampling._http_client import BrokenCall, HttpClient, Response, SlowServer, is_loopback
from selfevolve.sampling._limiter import BudgetSpent, CallStopped, Limiter, Permit, limiter_of
from selfevolve.sampling._replicas import Replicas
from selfevolve.sampling._retry import backoff, retry_after_seconds
from selfevolve.sampling.endpoint import Api, Budget, Endpoint
from selfevolve.sampling.protocol import FinishReason, Prompt, Reply, Sampling

__all__ = ["Api", "Budget", "Endpoint", "HttpSampler"]

logger = logging.getLogger(__name__)

LONGEST_REST = 86400.0  # seconds; a server that asks for more is asked again after a day


@dataclass(frozen=True)
class _Failure:
    """Why a request brought nothing new."""

    text: str
    timed_out: bool = False
    final: bool = False  # trying again cannot help
    unwell: bool = False  # the replica itself asks for, or needs, a rest
    retry_after: float | None = None  # seconds that the server asks for


@dataclass
class _Job:
    """The replies of one prompt, while they are gathered."""

    key: int  # what its seeds hang on: the prompt's place, or a key in place of it
    prompt: Prompt
    sampling: Sampling
    asked: int
    choices: int | None  # of one request, at most
    stop: threading.Event
    replies: list[Reply] = field(default_factory=list)
    drawn: int = 0  # choices that came with those requests that brought a reply
    failures: int = 0  # in a row
    started: float | None = None  # `time.monotonic` at the first request
    prompt_tokens: int = 0
    last_replica: int | None = None  # where the last request failed

    @property
    def missing(self) -> int:
        return self.asked - len(self.replies)

    @property
    def wanted(self) -> int:
        """Replies that the next request asks for."""
        return self.missing if self.choices is None else min(self.choices, self.missing)

    @property
    def seed(self) -> int:
        """The next request's seed."""
        return draw_seed(self.sampling.seed, self.key, self.sampling.first + self.drawn)

    @property
    def seconds(self) -> float:
        return 0.0 if self.started is None else time.monotonic() - self.started


class HttpSampler:
    """Answer prompts through an OpenAI-compatible endpoint; may be called from any number of threads at once."""

    def __init__(self, endpoint: Endpoint, name: str | None = None) -> None:
        """Read the key, join the endpoint's limiter; nothing is sent yet (`check` does that).

        Args:
            endpoint: where, which model, how hard.
            name: shown in records; None: the model's name.

        Raises:
            ValueError: the key's variable is not set, or the addresses are in use with other limits.
        """
        self.endpoint = endpoint
        self.name = name or endpoint.model
        self._client = HttpClient(endpoint)
        self._limiter: Limiter = limiter_of(endpoint)
        self._replicas = Replicas(len(endpoint.base_urls))
        exposed = [url for url in endpoint.base_urls if url.startswith("http://") and not is_loopback(url)]
        if exposed and endpoint.api_key_env:
            logger.warning("%s: the key of %s travels unencrypted to %s", self.name, endpoint.api_key_env, exposed[0])
        logger.info("%s: prompts in %s format, to %s", self.name, endpoint.api.value, ", ".join(endpoint.base_urls))

    def __repr__(self) -> str:
        """Show what it talks to."""
        return f"HttpSampler({self.name!r}, {self.endpoint!r})"

    @property
    def identity(self) -> str:
        """What a reply depends on beside prompt, sampling and sample index; part of a cache's key."""
        parts = {"api": self.endpoint.api.value, "model": self.endpoint.model, "extra": dict(self.endpoint.extra_body)}
        return json.dumps(parts, sort_keys=True)

    @property
    def spent(self) -> tuple[int, int]:
        """Requests sent to, and completion tokens got from, the endpoint by all its samplers in this process."""
        return self._limiter.requests_sent, self._limiter.completion_tokens

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[list[Reply]]:
        """Return ``sampling.n`` replies for each prompt, in order; axes ``[prompt][sample]``.

        At temperature 0 one reply a prompt is asked for and copied. Nothing is raised for what servers do.
        """
        return self.sample_keyed(prompts, sampling, range(len(prompts)))

    def sample_keyed(self, prompts: Sequence[Prompt], sampling: Sampling, keys: Sequence[int]) -> list[list[Reply]]:
        """Return replies as `sample` does; the seeds of requests hang on a key a prompt in place of its position."""
        gathered = dict(self.sample_each(prompts, sampling, keys))
        return [gathered[index] for index in range(len(prompts))]

    def sample_each(
        self, prompts: Sequence[Prompt], sampling: Sampling | Sequence[Sampling], keys: Sequence[int]
    ) -> Generator[tuple[int, list[Reply]], None, None]:
        """Yield (index of the prompt, its replies) as they come, in any order; else as `sample_keyed`.

        ``sampling`` is one for all prompts, or one a prompt.
        """
        stop = threading.Event()
        each = [sampling] * len(prompts) if isinstance(sampling, Sampling) else sampling
        if len(prompts) <= 1:
            for index, (prompt, key) in enumerate(zip(prompts, keys, strict=True)):
                yield index, self._answer(key, prompt, each[index], stop)
            return
        waiting: SimpleQueue[int] = SimpleQueue()
        done: SimpleQueue[tuple[int, list[Reply] | BaseException]] = SimpleQueue()
        for index in range(len(prompts)):
            waiting.put(index)

        def work() -> None:
            while not stop.is_set():
                try:
                    index = waiting.get_nowait()
                except Empty:
                    return
                try:
                    done.put((index, self._answer(keys[index], prompts[index], each[index], stop)))
                except BaseException as error:  # a defect of ours: raised where the caller waits
                    done.put((index, error))

        # daemons: an interrupted program does not wait for a silent server
        for _ in range(min(self.endpoint.concurrency, len(prompts))):
            threading.Thread(target=work, daemon=True, name=f"sampler {self.name}").start()
        try:
            for _ in prompts:
                index, outcome = done.get()
                if isinstance(outcome, BaseException):
                    raise outcome
                yield index, outcome
        finally:
            stop.set()

    def check(self, seconds: float = 10.0) -> None:
        """Ask every replica which models it serves; return where all serve ours.

        Raises:
            ValueError: nothing listens, the key is refused, or the model is not among those served.
        """
        for url in self.endpoint.base_urls:
            try:
                response = self._client.send("GET", f"{url}/models", None, seconds, time.monotonic() + seconds)
            except (SlowServer, BrokenCall) as error:
                text = self._client.clean(str(error))
                raise ValueError(f"no server answers at {url} ({text}); start it, or mend base_urls") from None
            served = self._served(url, response)
            if self.endpoint.model not in served:
                raise ValueError(
                    f"{url} does not serve {self.endpoint.model!r}; it serves {', '.join(served) or 'nothing'}: "
                    "name one of these as model"
                )

    def close(self) -> None:
        """Close the connections; the sampler is of no use after."""
        self._client.close()

    def _served(self, url: str, response: Response) -> list[str]:
        """Return the names in a server's list of models."""
        quoted = self._client.clean(quote(response.content))
        if response.status in (401, 403):
            variable = self.endpoint.api_key_env
            remedy = f"the key in {variable} is not accepted" if variable else "name the key's variable in api_key_env"
            raise ValueError(f"{url} answers {response.status} ({quoted}): {remedy}")
        try:
            if response.status == 200:
                return [str(model["id"]) for model in json.loads(response.content)["data"] or []]
        except (ValueError, KeyError, TypeError):
            pass  # told below, with what came
        raise ValueError(
            f"{url}/models answers {response.status} ({quoted}) and no list of models; "
            "base_urls should end where /models begins, most often in /v1"
        )

    def _answer(self, key: int, prompt: Prompt, sampling: Sampling, stop: threading.Event) -> list[Reply]:
        """Gather the replies of one prompt."""
        greedy = sampling.temperature == 0
        job = _Job(key, prompt, sampling, 1 if greedy else sampling.n, self.endpoint.choices, stop)
        while job.missing:
            failure = self._try(job)
            if failure is None:
                job.failures = 0
                continue
            job.failures += 1
            end = failure if failure.final else self._pause(job, failure)
            if end is not None:
                self._fill(job, end)
        return job.replies * sampling.n if greedy else job.replies

    def _try(self, job: _Job) -> _Failure | None:
        """Send one request for what is wanted next, and keep what it brings; return why nothing new came."""
        resting = self._wait(job, self._replicas.rest_left())
        if resting is not None:
            return resting
        body = request_body(self.endpoint, job.prompt, job.sampling, job.wanted, job.seed)
        estimate = len(body) // 4 + job.wanted * job.sampling.max_tokens
        try:
            with self._limiter.admit(estimate, job.stop) as permit:
                if job.started is None:
                    job.started = time.monotonic()
                replica = self._replicas.take(job.last_replica)
                try:
                    failure = self._send(job, body, replica, permit)
                finally:
                    self._replicas.give_back(replica)
        except BudgetSpent as spent:
            return _Failure(str(spent), final=True)
        except CallStopped:
            return _Failure("the caller stopped", final=True)
        job.last_replica = None if failure is None else replica
        return failure

    def _send(self, job: _Job, body: bytes, replica: int, permit: Permit) -> _Failure | None:
        url = self.endpoint.base_urls[replica] + ROUTES[self.endpoint.api]
        deadline = (job.started or 0.0) + self.endpoint.total_seconds
        try:
            response = self._client.send("POST", url, body, self.endpoint.read_seconds, deadline)
        except SlowServer as error:
            return _Failure(str(error), timed_out=True)
        except BrokenCall as error:
            permit.tokens = 0 if error.refused else None
            return _Failure(str(error), unwell=error.refused)
        if response.status != 200:
            permit.tokens = 0
            wait = retry_after_seconds(response.retry_after)
            final = response.status not in self.endpoint.retry_statuses
            text = f"status {response.status}: {quote(response.content)}"
            return _Failure(text, final=final, unwell=wait is not None, retry_after=wait)
        answer = read_answer(response.content, self.endpoint.api, job.wanted)
        self._keep(job, answer, permit)
        return None if answer.replies else _Failure(answer.problem or "no reply came")

    def _keep(self, job: _Job, answer: Answer, permit: Permit) -> None:
        """Add what came to the job, and tell the limiter what was used."""
        permit.completion_tokens = answer.completion_tokens or sum(len(r.text) // 4 + 1 for r in answer.replies)
        permit.tokens = answer.prompt_tokens + permit.completion_tokens
        job.prompt_tokens = answer.prompt_tokens or job.prompt_tokens
        if answer.replies:
            seconds, seed = job.seconds, job.seed if self.endpoint.send_seed else None
            job.replies += [replace(reply, seconds=seconds, seed=seed) for reply in answer.replies]
            job.drawn += answer.drawn

    def _pause(self, job: _Job, failure: _Failure) -> _Failure | None:
        """Pause after a failure; return what ends the job where no further request is sent."""
        if job.failures > self.endpoint.max_retries:
            tries = f"{job.failures} requests" if job.failures > 1 else "1 request"
            return replace(failure, text=f"{tries} in vain, the last: {failure.text}")
        pause = backoff(self.endpoint.backoff_seconds, self.endpoint.backoff_max_seconds, job.failures, job.seed)
        pause = min(max(pause, failure.retry_after or 0.0), LONGEST_REST)
        if failure.unwell and job.last_replica is not None:
            self._replicas.rest(job.last_replica, pause)
            pause = self._replicas.rest_left()  # none, where another replica is awake
        return self._wait(job, pause, failure.text)

    def _wait(self, job: _Job, seconds: float, last: str = "") -> _Failure | None:
        """Wait; return what ends the job where the wait is longer than its time, or the caller stopped."""
        if seconds <= 0:
            return None
        if job.started is None:
            job.started = time.monotonic()
        left = max(0.0, self.endpoint.total_seconds - job.seconds)
        if seconds >= left:
            text = f"the server can be asked again in {seconds:.1f} s, {left:.1f} s are left of total_seconds"
            return _Failure(f"{text}; the last failure: {last}" if last else text, timed_out=True, final=True)
        return _Failure("the caller stopped", final=True) if job.stop.wait(seconds) else None

    def _fill(self, job: _Job, failure: _Failure) -> None:
        """Let the replies that are still missing be failures."""
        reason = FinishReason.TIMEOUT if failure.timed_out else FinishReason.ERROR
        text = self._client.clean(failure.text)
        logger.debug("%s: prompt %d: %s", self.name, job.key, text)
        seed = job.seed if self.endpoint.send_seed else None
        lost = Reply("", reason, job.prompt_tokens, 0, text, job.seconds, seed)
        job.replies += [lost] * job.missing
