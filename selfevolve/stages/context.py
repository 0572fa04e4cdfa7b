"""What every stage of a round works with: the recipe, the run folder, and the models of the moment."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from novelty import ExhaustiveGate, KSampledGate, ModelJudge, NoveltyGate
from selfevolve import serving
from selfevolve.assess import AssessmentSettings, Assessor
from selfevolve.backbones import resolve_backbone
from selfevolve.config import Recipe, TrainStage
from selfevolve.config.backends import Backend, Role, places
from selfevolve.prompts import PromptPack, load_pack
from selfevolve.referee import ModelReferee, OracleReferee, Referee
from selfevolve.rewards import AskERule, RewardRule, Uncertainty
from selfevolve.rundir import INITIALISATION, RunDir
from selfevolve.sampling import Sampler, Sampling
from selfevolve.seeds import derive
from selfevolve.stages import ask_e
from selfevolve.train import LoraSpec, Savepoints, TrainSpec

Report = Callable[[str, int, int], None]  # (what is being done, done, of)
SERVERS = "servers"  # folder of the run with the logs of its servers


@dataclass
class Loaded:
    """A model at work, and the roles that sample from it."""

    sampler: Sampler
    roles: set[Role]


@dataclass
class Context:
    """One round's surroundings. Paths of checkpoints follow from the run folder, so a resumed round finds the same."""

    run: RunDir
    round: int  # from 1; 0 during the initialisation
    report: Report = lambda what, done, of: None
    _loaded: dict[tuple[str, str], Loaded] = field(default_factory=dict)  # by weights and backend

    @property
    def recipe(self) -> Recipe:
        """The recipe of the run."""
        return self.run.recipe

    @cached_property
    def pack(self) -> PromptPack:
        """The prompts."""
        return load_pack(self.recipe.prompts)

    def seed(self, stage: str, step: int = 0) -> int:
        """Return the seed of a stage's step in this round."""
        return derive(self.recipe.seed, self.round, stage, step)

    # ------------------------------------------------------------ weights

    @property
    def base(self) -> str:
        """The backbone both roles start from."""
        return resolve_backbone(self.recipe.backbone)

    @property
    def initial_solver(self) -> str:
        """The solver before round 1."""
        if self.recipe.initialisation.enabled:
            return str(self.run.checkpoint(0, INITIALISATION))
        return self.base

    def solver(self, after_round: int) -> str:
        """The solver's weights after a round; 0 is before the first."""
        return str(self.run.checkpoint(after_round, "solver")) if after_round else self.initial_solver

    def questioner(self, after_round: int) -> str:
        """The questioner's weights after a round; 0 is the backbone."""
        return str(self.run.checkpoint(after_round, "questioner")) if after_round else self.base

    # ------------------------------------------------------------ samplers

    def sampler(self, weights: str, name: str, role: Role) -> Sampler:
        """Return a keyed sampler of a model where the recipe wants the role's models; made once a round.

        Roles that share weights and backend share the sampler, so a checkpoint is loaded, or served, once.

        Args:
            weights: folder or hub id.
            name: shown in records and messages.
            role: what for.

        Raises:
            ServerError: an endpoint does not answer, or a server cannot be started.
        """
        backend = self.recipe.backends.of(role)
        place = (self._asked_for(weights, name, role, backend), backend.model_dump_json())
        if place not in self._loaded:
            log = self.run.path / SERVERS / f"r{self.round:02d}-{name.replace(' ', '-').replace('/', '-')}.log"
            r = self.recipe
            way = serving.Way(r.dtype, r.generation.batch, r.generation.max_prompt_tokens, r.trust_remote_code)
            main = os.environ.get("RANK", "0") == "0"
            # of several training processes the main one computes the reward; all play sessions, if it comes to them
            if main or (r.reward.rule == "ask_e" and r.ask_e.probes):
                sampler: Sampler = serving.make_sampler(way, backend, place[0], name, log)
            else:
                sampler = serving.Elsewhere(name)
            self._loaded[place] = Loaded(sampler, set())
            if main:
                serving.start(sampler)
        self._loaded[place].roles.add(role)
        return self._loaded[place].sampler

    def _asked_for(self, weights: str, name: str, role: Role, backend: Backend) -> str:
        """Return the weights, or for an endpoint the model's name as the recipe has it."""
        if backend.kind != "endpoint":
            return weights
        return {"base": self.recipe.backbone, "referee": self.recipe.referee_model or ""}.get(role, name)

    def check(self) -> None:
        """See that servers and endpoints are well, before a stage; a dead server is restarted, once.

        Raises:
            ServerError: one is not well and cannot be mended.
        """
        for place in places(self.recipe):
            if place.backend.kind == "endpoint":
                for model in place.models or ("",):
                    self.sampler(model, "base" if place.role == "base" else model, place.role)
        for loaded in self._loaded.values():
            serving.check(loaded.sampler)

    def release(self, keep: Role | None = None) -> None:
        """Stop servers and forget loaded models, all but those of a role that is asked again."""
        over = [place for place, loaded in self._loaded.items() if keep not in loaded.roles]
        if over:
            self.__dict__.pop("referee", None)
        serving.close([self._loaded.pop(place).sampler for place in over])

    # ------------------------------------------------------------ parts

    @property
    def sampling(self) -> Sampling:
        """How votes and solutions are drawn."""
        a = self.recipe.assessment
        limit = self.recipe.generation.max_new_tokens.solution
        return Sampling(1, a.temperature, a.top_p, a.top_k, limit)

    def assessor(self, rewarded: bool) -> Assessor:
        """Return the round's assessor: the last round's solver, and the gates of the recipe.

        Gates and clusters that serve the reward alone are left out unless `rewarded`.
        """
        a, n, r = self.recipe.assessment, self.recipe.novelty, self.recipe.reward
        solver = self.sampler(self.solver(self.round - 1), "solver", "solver")
        match a.validity.judge:
            case "current":
                validity: Sampler | None = solver
            case "frozen":
                validity = self.sampler(self.initial_solver, "initial solver", "solver")
            case _:
                validity = None
        gate: NoveltyGate | None = None
        judge = None
        if rewarded and n.gate != "none":
            gate = KSampledGate(n.k) if n.gate == "k_sampled" else ExhaustiveGate()
            limit = self.recipe.generation.max_new_tokens.judge
            sampling = replace(self.sampling, max_tokens=limit, seed=self.seed("novelty"))
            judge = ModelJudge(self.sampler(self.base, "base", "base"), self.pack.same_type, sampling)
        settings = AssessmentSettings(
            votes=a.validity.votes,
            solutions=a.solutions,
            share_low=a.share_low,
            share_high=a.share_high,
            denominator=a.denominator,
            min_answered=a.min_answered,
            min_answered_votes=a.validity.min_answered,
            sampling=self.sampling,
            early_stop=a.early_stop,
            bleu_threshold=r.bleu_threshold if rewarded and r.repetition == "bleu" else None,
        )
        by_ask_e = rewarded and r.rule == "ask_e"
        table = ask_e.judge(self) if by_ask_e else None
        return Assessor(self.pack, solver, settings, self.rule, validity, gate, judge, table)

    @property
    def rule(self) -> RewardRule | AskERule:
        """The questioner's reward."""
        repetition = self.recipe.reward.repetition == "bleu"
        validity = self.recipe.assessment.validity.judge != "off"
        novelty = self.recipe.novelty.gate != "none"
        if self.recipe.reward.rule == "ask_e":
            return AskERule(repetition, validity, novelty, sessions=self.recipe.ask_e.probes > 0)
        return RewardRule(
            Uncertainty(self.recipe.reward.uncertainty),
            repetition=repetition,
            validity_gate=validity,
            novelty_gate=novelty,
        )

    @cached_property
    def referee(self) -> Referee | None:
        """Who judges the questions in diagnostics."""
        match self.recipe.referee:
            case "oracle":
                return OracleReferee()
            case "model":
                name = self.recipe.referee_model or self.recipe.backends.of("referee").model or ""
                judge = self.sampler(resolve_backbone(name), name, "referee")
                return ModelReferee(judge, self.pack, self.sampling, self.recipe.diagnostics.orderings)
            case _:
                return None

    def savepoints(self, stage: str, save: Callable[[Path], None]) -> Savepoints | None:
        """Return where a training stage is saved in between, None where that is switched off."""
        minutes = self.recipe.save_minutes
        return Savepoints(self.run.savepoint(self.round, stage), minutes, save) if minutes else None

    def train_spec(self, stage: TrainStage, name: str, max_new_tokens: int) -> TrainSpec:
        """Return a training stage's settings in the trainer's form."""
        lora = self.recipe.lora
        return TrainSpec(
            steps=stage.steps,
            prompts=stage.prompts,
            responses=stage.responses,
            global_batch=stage.global_batch,
            micro_batch=self.recipe.micro_batch,
            learning_rate=stage.learning_rate,
            kl=stage.kl,
            temperature=stage.temperature,
            top_p=stage.top_p,
            max_prompt_tokens=self.recipe.generation.max_prompt_tokens,
            max_new_tokens=max_new_tokens,
            seed=self.seed(name),
            lora=LoraSpec(lora.rank, lora.alpha, lora.targets) if lora else None,
            dtype=self.recipe.dtype,
            gradient_checkpointing=self.recipe.gradient_checkpointing,
            sample_batch=self.recipe.generation.batch,
            trust_remote_code=self.recipe.trust_remote_code,
        )
