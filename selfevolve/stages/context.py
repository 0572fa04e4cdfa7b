"""What every stage of a round works with: the recipe, the run folder, and the models of the moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

from novelty import ExhaustiveGate, KSampledGate, ModelJudge, NoveltyGate
from selfevolve.assess import AssessmentSettings, Assessor
from selfevolve.backbones import resolve_backbone
from selfevolve.config import Recipe, TrainStage
from selfevolve.prompts import PromptPack, load_pack
from selfevolve.referee import ModelReferee, OracleReferee, Referee
from selfevolve.rewards import AskERule, RewardRule, Uncertainty
from selfevolve.rundir import INITIALISATION, RunDir
from selfevolve.sampling import Sampler, Sampling
from selfevolve.seeds import derive
from selfevolve.stages import ask_e
from selfevolve.train import LoraSpec, TrainSpec

Report = Callable[[str, int, int], None]  # (what is being done, done, of)


@dataclass
class Context:
    """One round's surroundings. Paths of checkpoints follow from the run folder, so a resumed round finds the same."""

    run: RunDir
    round: int  # from 1; 0 during the initialisation
    report: Report = lambda what, done, of: None
    _samplers: dict[str, Sampler] = field(default_factory=dict)

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

    def sampler(self, weights: str, name: str) -> Sampler:
        """Return an in-process sampler of a checkpoint, loaded once a round."""
        if weights not in self._samplers:
            import torch

            from selfevolve.sampling.transformers_sampler import TransformersSampler

            self._samplers[weights] = TransformersSampler(
                weights,
                name=name,
                batch=self.recipe.generation.batch,
                max_prompt_tokens=self.recipe.generation.max_prompt_tokens,
                dtype=getattr(torch, self.recipe.dtype),
            )
        return self._samplers[weights]

    def release(self) -> None:
        """Forget the loaded models, so that memory stays flat over rounds."""
        self._samplers.clear()

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
        solver = self.sampler(self.solver(self.round - 1), "solver")
        match a.validity.judge:
            case "current":
                validity: Sampler | None = solver
            case "frozen":
                validity = self.sampler(self.initial_solver, "initial solver")
            case _:
                validity = None
        gate: NoveltyGate | None = None
        judge = None
        if rewarded and n.gate != "none":
            gate = KSampledGate(n.k) if n.gate == "k_sampled" else ExhaustiveGate()
            limit = self.recipe.generation.max_new_tokens.judge
            sampling = replace(self.sampling, max_tokens=limit, seed=self.seed("novelty"))
            judge = ModelJudge(self.sampler(self.base, "base"), self.pack.same_type, sampling)
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
                model = resolve_backbone(self.recipe.referee_model or "")
                judge = self.sampler(model, self.recipe.referee_model or "")
                return ModelReferee(judge, self.pack, self.sampling, self.recipe.diagnostics.orderings)
            case _:
                return None

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
