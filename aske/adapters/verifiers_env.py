"""Ask-E as an environment of verifiers 0.4 (its v1 interface): a taskset of sessions, and an env with four seats.

The game itself is `aske.game.Session`; this module asks the seats and tells it their replies. Every run is local:
a seat is a chat loop in this process whose calls go through verifiers' own interception server on 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import copy
import importlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import verifiers.v1 as vf
from pydantic import Field
from verifiers.v1.clients.base import build_async_httpx
from verifiers.v1.dialects.chat import message_to_wire

from aske.errors import AskeError
from aske.game import Rules, Seat, Session, State
from aske.labels import Label, Reason
from aske.play import derive
from aske.prompts import load_pack
from aske.records import Call, SessionRecord, record
from aske.reward import Embed, Memory, RewardSettings, Vectors, score
from selfevolve.sampling import FinishReason, Prompt, Reply, Sampling

_LOCAL = vf.SubprocessConfig()
_LIMITS = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens")
_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class Ungradable(RuntimeError):
    """The session's label is ungradable: the episode fails, so that no trainer takes it for a reward of 0."""


# ---------------------------------------------------------------- the chat loop of a seat


class AskeHarnessConfig(vf.HarnessConfig):  # type: ignore[misc]
    """How a seat's calls are repeated."""

    attempts: int = Field(5, ge=1)
    """Requests of one reply, the first included."""
    backoff: float = Field(0.5, ge=0)
    """Seconds before the second request; doubled with each, up to half more by chance."""


class AskeHarness(vf.Harness[AskeHarnessConfig]):  # type: ignore[misc]
    """One chat completion a segment, asked for in this process: no program, no tools, no sandbox."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """Ask for one reply; a failure that lasts is raised, and verifiers records the provider's error."""
        system, prompt = self.resolve_prompt(data)
        said = [vf.UserMessage(content=prompt)] if isinstance(prompt, str) else list(prompt or ())
        messages = [message_to_wire(m) for m in ([vf.SystemMessage(content=system)] if system else []) + said]
        body = {"model": ctx.model, "messages": messages}
        async with build_async_httpx(ctx.client) as client:
            for attempt in range(self.config.attempts):
                headers = {"Authorization": f"Bearer {secret}", "x-stainless-retry-count": str(attempt)}
                reply = await client.post(f"{endpoint}/chat/completions", json=body, headers=headers)
                if reply.status_code not in _RETRIED or attempt + 1 == self.config.attempts:
                    break
                await asyncio.sleep(self.config.backoff * 2**attempt * random.uniform(1, 1.5))
        if trace.stop_condition is None and reply.status_code != 200:
            raise RuntimeError(f"the model's endpoint answered {reply.status_code}: {reply.text[:500]}")
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


# ---------------------------------------------------------------- the sessions


class AskeData(vf.TaskData):  # type: ignore[misc]
    """One session. Only `prompt` and `system_prompt` are sent to the asker."""

    pair: tuple[str, str] | None = None
    """Models of boundary_a and boundary_b in this session; None: the seats' own."""
    slot: int = 0
    """Which session of the pair, from 0."""
    flip: bool = False
    """The asker knows boundary_b as Solver 1."""


class AskeTask(vf.Task[AskeData, vf.State]):  # type: ignore[misc]
    """A session; its reward is recorded by the env, since it hangs on all four seats."""


class AskeTasksetConfig(vf.TasksetConfig):  # type: ignore[misc]
    """Which sessions are played, and by which rules."""

    pairs: list[tuple[str, str]] = Field(default_factory=list)
    """Boundary pairs by model id, served by the boundary seats' clients; empty: one pair, the seats' own models."""
    sessions: int = Field(10, ge=1)
    """Sessions a pair."""
    seed: int = 0
    """Decides which solver is Solver 1 in each session."""
    prompts: str = "standard"
    """A shipped pack of prompts, or the path of a YAML file."""
    probes: int = Field(4, ge=0)
    """Probe questions before the final one; 4 in the benchmark, 3 in training, 0 without probing."""
    checks: int = Field(3, ge=1)
    """Cross-check replies, which must agree; 3 in the benchmark, 1 in training."""
    question_words: int = Field(200, ge=1)
    """Longer questions are cut."""
    reply_chars: int = Field(2000, ge=1)
    """What the asker reads of a solver's reply is cut to this."""

    @property
    def rules(self) -> Rules:
        """The rules, as the game takes them."""
        return Rules(self.probes, self.checks, self.question_words, self.reply_chars)


def _messages(prompt: Prompt) -> tuple[str | None, list[Any]]:
    """Return a prompt's system text and its other messages."""
    system = next((m.content for m in prompt if m.role == "system"), None)
    return system, [vf.UserMessage(content=m.content) for m in prompt if m.role == "user"]


class AskeTaskset(vf.Taskset[AskeTask, AskeTasksetConfig]):  # type: ignore[misc]
    """Sessions in order: all of the first pair, then all of the next."""

    def load(self) -> Iterator[AskeTask]:
        """Yield the sessions."""
        config: AskeTasksetConfig = self.config
        pack = load_pack(config.prompts)
        system, said = _messages(pack.open(config.probes, config.question_words))
        pairs: list[tuple[str, str] | None] = [*config.pairs] or [None]
        for pair in pairs:
            for slot in range(config.sessions):
                name = f"{'+'.join(pair or ('boundary_a', 'boundary_b'))}/{slot}"
                flip = bool(derive(config.seed, "flip", name) % 2)
                data = AskeData(name=name, prompt=said, system_prompt=system, pair=pair, slot=slot, flip=flip)
                yield AskeTask(data, config.task)


# ---------------------------------------------------------------- the env


class RewardConfig(vf.BaseConfig):  # type: ignore[misc]
    """What each outcome earns; the fields are those of `aske.reward.RewardSettings`."""

    calibrated: float = 1.0
    too_easy: float = 0.2
    too_hard: float = -0.2
    no_question: float = 0.0
    bad_cross_check: float = 0.0
    malformed: float = -0.05
    alpha: float = Field(1.0, ge=0)
    neighbours: int = Field(5, ge=1)
    memory: int = Field(5000, ge=1)


def _seat(temperature: float, max_tokens: int) -> vf.AgentConfig:
    sampling = vf.SamplingConfig(temperature=temperature, max_tokens=max_tokens)
    return vf.AgentConfig(runtime=_LOCAL, network_notice=False, sampling=sampling)


class AskeEnvConfig(vf.EnvConfig):  # type: ignore[misc]
    """The seats and the reward."""

    asker: vf.AgentConfig = _seat(1.0, 2048)
    """The policy: the run's model, unless it is pinned."""
    boundary_a: vf.AgentConfig = _seat(0.7, 4096)
    boundary_b: vf.AgentConfig = _seat(0.7, 4096)
    cross_check: vf.AgentConfig = _seat(0.7, 4096)
    """The run's model unless it is pinned: in training, the policy's own current weights."""
    max_concurrent_agents: int | None = Field(3, ge=1)
    """Both solvers, and the cross-check's replies, run side by side."""
    reward: RewardConfig = RewardConfig()
    embedder: str | None = None
    """For the diversity term: ``module:function`` from questions to vectors, or the name or folder of a
    sentence-transformers model; None: no diversity term."""
    group: int = Field(1, ge=1)
    """Episodes a task (``-r``, the trainer's group): they are scored against the memory as it was before them."""


class AskeEnv(vf.Env[AskeEnvConfig]):  # type: ignore[misc]
    """Plays sessions and rewards the asker. The memory of questions is one for this process."""

    def __init__(self, config: AskeEnvConfig) -> None:
        """Check the pair, and load prompts and embedder."""
        super().__init__(config)
        game = self.taskset.config
        if not isinstance(game, AskeTasksetConfig):
            raise AskeError(f"the taskset is {game.id!r}; AskeEnv plays its own, aske-v1")
        if not game.pairs and None in (config.boundary_a.model, config.boundary_b.model):
            raise AskeError(
                "no boundary pair is given",
                "Set env.taskset.pairs, or env.boundary_a.model and env.boundary_b.model.",
            )
        self.pack = load_pack(game.prompts)
        self.settings = RewardSettings(**config.reward.model_dump())
        self.embed = None if config.embedder is None else load_embedder(config.embedder)
        self.memory = None if self.embed is None else Memory(self.settings.memory)
        self._pending: dict[str, list[tuple[str, Vectors] | None]] = {}  # a task's questions until its group is whole

    async def setup(self, agents: vf.Agents) -> None:
        """Only the asker's tokens are training data."""
        for seat in (agents.boundary_a, agents.boundary_b, agents.cross_check):
            seat.trainable = False

    async def run(self, task: AskeTask, agents: vf.Agents) -> None:
        """Play one session; its record goes to the asker's trace, as ``info["aske"]``."""
        data: AskeData = task.data
        solvers = (agents.boundary_a, agents.boundary_b)
        for solver, model in zip(solvers, data.pair or (), strict=False):
            solver.config = solver.config.model_copy(update={"model": model})
            solver.ctx = replace(solver.ctx, model=model)
        pair = (solvers[0].config.model, solvers[1].config.model)
        session = Session(f"{agents.asker.config.model}/{data.name}", self.pack, self.taskset.config.rules, data.flip)
        calls: list[Call] = []
        async with agents.asker.interaction(task) as asker:
            while not session.over:
                turn = len(session.turns) + 1
                sent = len(session.messages)
                segment = await asker.turn(session.messages[-1].content if turn > 1 else None)
                reply = read_reply(asker.trace, not segment.terminated)
                calls.append(_call(Seat.ASKER, turn, agents.asker, sent, [reply]))
                session.hear_asker(reply)
                if session.state is State.BOUNDARY:
                    prompt = session.boundary_prompt()
                    a, b = await _ask(solvers, data.idx, prompt)
                    calls.append(_call(Seat.BOUNDARY_A, turn, solvers[0], prompt, [a]))
                    calls.append(_call(Seat.BOUNDARY_B, turn, solvers[1], prompt, [b]))
                    session.hear_boundary(a, b)
                if session.state is State.CROSS_CHECK:
                    prompt = session.cross_check_prompt()
                    replies = await _ask([agents.cross_check] * session.rules.checks, data.idx, prompt)
                    calls.append(_call(Seat.CROSS_CHECK, turn, agents.cross_check, prompt, replies))
                    session.hear_cross_check(replies)
            row = record(session, agents.asker.config.model, pair, data.slot, calls)
            asker.trace.info["aske"] = row.to_json()

    async def finalize(self, task: AskeTask, episode: vf.Episode) -> None:
        """Record label and reward on the asker's trace; an ungradable session fails the episode."""
        (trace,) = [t for t in episode.traces if t.agent.name == Seat.ASKER.value]
        row = SessionRecord.from_json(trace.info["aske"])
        for label in Label:
            trace.record_metric(label.value, float(row.label is label))
        trace.record_metric("malformed", row.malformed)
        memory = copy.copy(self.memory)  # `score` remembers in the copy; the memory itself waits for the whole group
        (reward,) = score([row.label], [row.malformed], [row.question], self.settings, memory, self.embed)
        new = row.question if row.label.counted else None
        vectors = None if memory is None else memory.vectors
        self._remember(task.key, (new, vectors[-1:]) if new is not None and vectors is not None else None)
        if reward is None:
            raise Ungradable(f"{row.grade.reason}: {row.grade.detail}")
        for name, value in reward.terms.items():
            trace.record_reward(name, value)

    def _remember(self, key: str, found: tuple[str, Vectors] | None) -> None:
        """Hold a question back until all episodes of its task are scored."""
        if self.memory is None:
            return
        waiting = self._pending.setdefault(key, [])
        waiting.append(found)
        if len(waiting) == self.config.group:
            for question, vector in filter(None, self._pending.pop(key)):
                self.memory.add([question], vector)


def load_embedder(name: str) -> Embed:
    """Return a function from questions to vectors; see `AskeEnvConfig.embedder`."""
    module, found, attribute = name.partition(":")
    if found:
        function: Embed = getattr(importlib.import_module(module), attribute)
        return function
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(name, model_kwargs={"use_safetensors": True})
    return lambda questions: np.asarray(model.encode(list(questions), show_progress_bar=False), dtype=np.float64)


async def _ask(agents: Sequence[vf.Agent], idx: int | None, prompt: Prompt) -> list[Reply]:
    """Put one prompt to several seats side by side; replies in their order."""
    system, said = _messages(prompt)
    task = vf.Task(vf.TaskData(idx=idx, prompt=said, system_prompt=system))
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(agent.run(task)) for agent in agents]
    return [read_reply(done.result(), done.result().ok) for done in running]


def read_reply(trace: vf.Trace, answered: bool) -> Reply:
    """Return the last reply of a trace, or why there is none.

    Args:
        trace: a seat's run, finished or under way.
        answered: the last segment ended with a reply.
    """
    if not answered:
        return _no_reply(trace)
    call = trace.calls[-1]
    usage = call.usage
    text = trace.assistant_messages[-1].content or ""
    finish = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}.get(call.finish_reason or "")
    if finish is None:
        return Reply(text, FinishReason.ERROR, error=f"the reply ended as {call.finish_reason!r}")
    sent, new = (usage.input_tokens, usage.completion_tokens) if usage is not None else (0, 0)
    return Reply(text, finish, sent, new, seconds=call.time.duration)


def _no_reply(trace: vf.Trace) -> Reply:
    error = trace.last_error
    said = error.message if error is not None else f"the run ended: {trace.stop_condition}"
    status = error.status_code if error is not None else None
    full = trace.stop_condition in _LIMITS or (status in (400, 413) and "context" in said.lower())
    if full:
        return Reply("", FinishReason.ERROR, error=Reason.CONTEXT_EXHAUSTED.value)
    late = trace.is_timeout or status in (408, 504)
    return Reply("", FinishReason.TIMEOUT if late else FinishReason.ERROR, error=said[:500])


def _call(seat: Seat, turn: int, agent: vf.Agent, sent: int | Prompt, replies: Sequence[Reply]) -> Call:
    """Return the record of one request; what the endpoint decides itself stands at the sampling's defaults."""
    drawn = agent.config.sampling
    given = {name: getattr(drawn, name, None) for name in ("temperature", "top_p", "top_k", "max_tokens", "seed")}
    sampling = Sampling(n=len(replies), **{k: v for k, v in given.items() if v is not None})
    seconds = max(reply.seconds for reply in replies)
    return Call(seat, turn, agent.config.model, sent, sampling, 0, seconds, tuple(replies))
