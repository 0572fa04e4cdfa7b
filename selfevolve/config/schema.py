"""The recipe: every setting of a run, with its unit and range.

Counts of samples read "inputs x responses": an *input* is one prompt, and each input gets ``responses`` replies.
Defaults are the papers' values (R-Quest, appendices A.3 and C.2; R-Zero).
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from selfevolve.config import checks
from selfevolve.config.backends import Backends
from selfevolve.config.section import Section as Section  # part of this module too

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
CountOrZero = Annotated[int, Field(ge=0)]

Steps = Annotated[int, Field(ge=1, le=100_000, description="GRPO steps, each one rollout batch; 1 or more")]
Prompts = Annotated[int, Field(ge=1, description="inputs in one rollout batch; 1 or more")]
Responses = Annotated[
    int, Field(ge=2, le=1024, description="replies an input, the group of GRPO; at least 2, since 1 has no spread")
]
GlobalBatch = Annotated[int, Field(ge=1, description="inputs in one optimiser update; 1 or more, a divisor of prompts")]
LearningRate = Annotated[float, Field(gt=0, le=0.1, description="AdamW learning rate; in (0, 0.1], such as 1e-6")]
Kl = Annotated[float, Field(ge=0, le=10, description="coefficient of the KL term; 0 switches it off, at most 10")]
Temperature = Annotated[
    float,
    Field(gt=0, le=10, description="sampling temperature, no unit; in (0, 10], since greedy replies never differ"),
]
TopP = Annotated[float, Field(gt=0, le=1, description="nucleus cut of sampling, a probability; in (0, 1], 1 is off")]
TokenLimit = Annotated[int, Field(ge=1, le=1_000_000)]
SaveMinutes = Annotated[
    float,
    Field(
        ge=0,
        le=10_000,
        description="minutes between two savepoints of a training stage, from which it goes on after a kill; 0 is off. "
        "A stage that is shorter makes none",
    ),
]


class TokenLimits(Section):
    """New tokens a reply, at most, by what the reply is for."""

    question: TokenLimit = Field(default=4096, description="new tokens of a candidate question, at most; 1 or more")
    solution: TokenLimit = Field(
        default=4096, description="new tokens of a solution or a validity reply, at most; 1 or more"
    )
    judge: TokenLimit = Field(default=4096, description="new tokens of a same-type verdict, at most; 1 or more")


class Generation(Section):
    """How text is generated, whatever it is for."""

    batch: Count = Field(
        default=256, description="sequences decoded together in one process; 1 or more, bounded by memory"
    )
    max_new_tokens: TokenLimits = Field(default=TokenLimits(), description="limits on new tokens a reply")
    max_prompt_tokens: TokenLimit = Field(
        default=2048,
        description="tokens of a prompt, at most; 1 or more; longer inputs are left out and counted, never cut",
    )


class Lora(Section):
    """Low-rank adapters in place of full fine-tuning."""

    rank: Annotated[int, Field(ge=1, le=1024)] = Field(default=16, description="rank of each adapter; 1 to 1024")
    alpha: Annotated[float, Field(gt=0)] = Field(
        default=32.0, description="scale: updates count alpha / rank times; above 0"
    )
    targets: str | tuple[str, ...] = Field(
        default="all-linear", description="modules that get an adapter: 'all-linear', or a list of module names"
    )


class TrainStage(Section):
    """What the three GRPO stages share."""

    steps: Steps = 15
    prompts: Prompts = 512
    responses: Responses = 8
    global_batch: GlobalBatch = 128
    learning_rate: LearningRate = 1e-6
    kl: Kl = 1e-2
    temperature: Temperature = 1.0
    top_p: TopP = 0.99


class Initialisation(TrainStage):
    """Validity-aware initialisation of the solver, once before round 1 (R-Quest, section 3.1 and appendix A)."""

    enabled: bool = Field(
        default=True, description="train the solver to reject invalid questions before round 1; true or false"
    )
    data: str = Field(
        default="initialisation.jsonl",
        description="labelled questions: a path to a JSONL file, or 'testbed' for the set that ships with it",
    )


class Questioner(TrainStage):
    """Update of the questioner (R-Quest, appendix C.2)."""

    steps: Steps = 5
    responses: Responses = 4
    global_batch: GlobalBatch = 4


class Solver(TrainStage):
    """Update of the solver on its own pseudo-labels (R-Quest, appendix C.2)."""

    responses: Responses = 5
    replay: Share = Field(
        default=0.1,
        description="share of initialisation examples in the solver's data; 0 to 1, 0 when there is no initialisation",
    )
    pseudo_label_weight: Share = Field(default=0.9, description="reward for agreeing with the pseudo-label; 0 to 1")
    format_weight: Share = Field(
        default=0.1, description="reward for reasoning in think tags followed by a box; 0 to 1"
    )


class Validity(Section):
    """The validity gate: votes on whether a question is well posed (R-Quest, section 3.2)."""

    judge: Literal["current", "frozen", "off"] = Field(
        default="current",
        description="who votes: 'current' solver, the 'frozen' solver as it was after initialisation, or 'off'",
    )
    votes: Count = Field(default=9, description="validity replies a question; 1 or more, odd to avoid ties")
    min_answered: Share = Field(
        default=0.5, description="share of votes that must be readable, else the question is undecided; 0 to 1"
    )


class Assessment(Section):
    """How a question is assessed, for the questioner's reward and for the solver's data alike."""

    validity: Validity = Field(default=Validity(), description="the validity gate")
    solutions: Annotated[int, Field(ge=2)] = Field(default=10, description="fresh solutions a question; 2 or more")
    share_low: Share = Field(
        default=0.3, description="smallest majority share of a kept question; 0 to 1, below share_high"
    )
    share_high: Share = Field(
        default=0.8, description="largest majority share of a kept question; 0 to 1, above share_low"
    )
    denominator: Literal["answered", "asked"] = Field(
        default="answered",
        description="the majority share is taken over 'answered' solutions, or over all 'asked' (the papers)",
    )
    min_answered: Share = Field(
        default=0.5, description="share of solutions that must carry an answer, else the question is undecided; 0 to 1"
    )
    temperature: Temperature = 1.0
    top_p: TopP = 1.0
    top_k: CountOrZero = Field(default=40, description="tokens kept at each sampling step; 0 is off")
    early_stop: bool = Field(
        default=True,
        description="ask for no vote and no solution that can change no decision and no reward; true or false",
    )


class Novelty(Section):
    """The novelty gate of the questioner's reward (R-Quest, section 3.3 and appendix B)."""

    gate: Literal["none", "k_sampled", "exhaustive"] = Field(
        default="k_sampled",
        description="'none', 'k_sampled' others of the batch, or 'exhaustive': all others of the batch",
    )
    k: Count = Field(default=8, description="other questions that each candidate is compared with; 1 to batch size - 1")


class Reward(Section):
    """The questioner's reward for a question that passed the gates."""

    rule: Literal["solver", "ask_e"] = Field(
        default="solver",
        description="'solver': uncertainty of one solver; 'ask_e': exactly one of two solvers right, see ask_e",
    )
    uncertainty: Literal["min", "peaked"] = Field(
        default="min", description="of the majority share s: 'min' is min(s, 1 - s), 'peaked' is 1 - 2 |s - 1/2|"
    )
    repetition: Literal["bleu", "none"] = Field(
        default="none", description="'bleu' subtracts R-Zero's penalty, cluster size / batch size; 'none' does not"
    )
    bleu_threshold: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.5, description="BLEU distance (1 - BLEU) below which clusters merge; between 0 and 1, both excluded"
    )


class AskE(Section):
    """Ask-E's game as the questioner's reward (Ask-E, training); read where reward.rule is 'ask_e'."""

    pairs: Annotated[tuple[tuple[str, str], ...], Field(min_length=1)] = Field(
        default=(("base", "current"),),
        description="pairs of boundary solvers, drawn a group: 'base', 'initial' (before round 1), 'current' (last "
        "round), 'previous' (the round before), 'testbed:NAME', a hub id or a folder",
    )
    cross_check: str = Field(
        default="questioner",
        min_length=1,
        description="whose answer counts as right: 'questioner' (the policy's own current weights), or a name as in "
        "pairs",
    )
    checks: Literal[1, 3] = Field(
        default=1, description="cross-checks a question: 1 greedy one, or 3 drawn ones that must agree"
    )
    probes: Annotated[int, Field(ge=0, le=10)] = Field(
        default=0,
        description="probe questions before the final one; 0: the questioner writes one question as ever; above 0 its "
        "rollouts are whole sessions",
    )
    prompts: str | None = Field(
        default=None, description="texts of sessions: 'testbed', 'standard' or a path; null: what fits prompts"
    )
    temperature: Annotated[float, Field(gt=0, le=10)] = Field(
        default=0.7, description="sampling temperature of boundary solvers and of 3 cross-checks; in (0, 10]"
    )
    too_easy: Annotated[float, Field(ge=-1, le=1)] = Field(
        default=0.2, description="reward where both solvers are right, beside 1 where exactly one is; -1 to 1"
    )
    too_hard: Annotated[float, Field(ge=-1, le=1)] = Field(
        default=-0.2, description="reward where neither is right; -1 to 1"
    )
    alpha: Annotated[float, Field(ge=0, le=10)] = Field(
        default=1.0, description="weight of the diversity term; 0 switches it off, at most 10"
    )
    neighbours: Count = Field(default=5, description="nearest past questions whose cosines are averaged; 1 or more")
    memory: Count = Field(default=5000, description="past questions remembered over the whole run; 1 or more")
    embedder: str = Field(
        default="ngrams",
        min_length=1,
        description="'ngrams' (hashed word n-grams), or a sentence-transformers model by folder or hub id",
    )


class Diagnostics(Section):
    """What is measured after each round; nothing here is read in training."""

    sample: CountOrZero = Field(
        default=200, description="questions of the pool that the referee judges; 0 is all of them"
    )
    heldout: Count = Field(default=297, description="held-out labelled questions for validity calibration; 1 or more")
    solver_samples: Count = Field(
        default=4, description="sampled solutions a held-out question, beside the greedy one; 1 or more"
    )
    orderings: Count = Field(default=3, description="orderings in which questions are grouped into patterns; 1 or more")


class Monitor(Section):
    """Bounds of the collapse monitor: it warns below them, and with ``stop`` it ends the run."""

    stop: bool = Field(default=False, description="end the run at the first bound that is broken; true or false")
    min_valid_rate: Share = Field(default=0.25, description="share of valid questions in the pool, at least; 0 to 1")
    min_distinct_patterns: CountOrZero = Field(
        default=3, description="different patterns in the pool, at least; 0 is off"
    )
    min_kept: Count = Field(default=32, description="kept questions a round, at least; 1 or more")
    min_answered_share: Share = Field(
        default=0.5, description="share of replies that carry an answer, at least; 0 to 1"
    )
    min_reward_std: Annotated[float, Field(ge=0)] = Field(
        default=0.005, description="standard deviation of a step's rewards, at least; 0 is off"
    )


class Recipe(Section):
    """All settings of a run."""

    name: str = Field(default="", description="shown in reports; the recipe's file name when left out")
    description: str = Field(default="", description="one line on what the recipe is for")
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(
        default=0, description="seed of everything drawn; 0 to 2147483647"
    )
    rounds: Annotated[int, Field(ge=1, le=1000)] = Field(default=10, description="rounds of self-evolution; 1 to 1000")

    backbone: str = Field(
        default="Qwen/Qwen3-4B-Base",
        min_length=1,
        description="model both roles start from: 'testbed:NAME', a hub id, or a local folder",
    )
    prompts: str = Field(
        default="standard", min_length=1, description="prompt pack: 'testbed', 'standard', 'plain', or a path to YAML"
    )
    trust_remote_code: bool = Field(
        default=False, description="run code that the model's repository carries; true or false"
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        default="bfloat16", description="weights and arithmetic; float32 on CPUs"
    )
    lora: Lora | None = Field(default=None, description="adapter settings, or null for full fine-tuning")
    micro_batch: Count = Field(
        default=8,
        description="sequences in one forward-backward pass of a process, at most; 1 or more, bounded by memory",
    )

    gradient_checkpointing: bool = Field(
        default=False,
        description="keep fewer activations in training, for a second forward pass; true or false; changes no result",
    )

    launcher: Literal["inline", "accelerate"] = Field(
        default="inline", description="training stages run 'inline', or each in a child process under 'accelerate'"
    )
    accelerate_config: str | None = Field(
        default=None,
        description="accelerate's own config: a file name in recipes/accelerate or a path; null for its defaults",
    )
    processes: Count = Field(
        default=1, description="training processes of all machines; 1 or more, 1 when the launcher is inline"
    )
    machines: Count = Field(
        default=1, description="machines that train together over one run folder; 1 or more, a divisor of processes"
    )
    main_address: str | None = Field(
        default=None,
        min_length=1,
        description="name or IP address of machine 0 as the others reach it, or 'auto' for its host name; needed when "
        "machines is above 1",
    )

    keep_checkpoints: Annotated[int, Field(ge=2)] | None = Field(
        default=None,
        description="complete rounds whose checkpoints stay on disk, 2 or more; null for all. Records always stay",
    )

    save_minutes: SaveMinutes = 30.0

    referee: Literal["oracle", "model", "none"] = Field(
        default="none",
        description="who says what is really so in diagnostics: the testbed's 'oracle', a 'model', or 'none'",
    )
    referee_model: str | None = Field(
        default=None, description="hub id or folder of the referee; needed when referee is 'model'"
    )

    backends: Backends = Field(default=Backends(), description="where frozen models live")
    generation: Generation = Field(default=Generation(), description="how text is generated")
    initialisation: Initialisation = Field(default=Initialisation(), description="validity-aware initialisation")
    questioner: Questioner = Field(default=Questioner(), description="update of the questioner")
    candidates: Count = Field(
        default=10_000, description="questions written for the solver's data each round; 1 or more"
    )
    assessment: Assessment = Field(default=Assessment(), description="how questions are assessed")
    novelty: Novelty = Field(default=Novelty(), description="the novelty gate")
    reward: Reward = Field(default=Reward(), description="the questioner's reward")
    ask_e: AskE = Field(default=AskE(), description="Ask-E's game as the questioner's reward")
    solver: Solver = Field(default=Solver(), description="update of the solver")
    diagnostics: Diagnostics = Field(default=Diagnostics(), description="what is measured after each round")
    monitor: Monitor = Field(default=Monitor(), description="bounds of the collapse monitor")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        """Refuse settings that are each in range but do not fit one another."""
        if problems := checks.problems(self):
            raise ValueError("\n".join(problems))
        return self
