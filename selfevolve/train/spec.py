"""What a GRPO or CISPO stage needs and gives, without torch or TRL.

Counts read "inputs x responses": an *input* is one prompt of a rollout batch and gets ``responses`` completions, which
form one group. A completion is one reply, or a whole conversation with a world. A *place* is an index into the flat
list of a rollout batch. Axis legend for flat lists: ``[input * responses + sample]``, groups contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from selfevolve.errors import UserError
from selfevolve.sampling import FinishReason, KeyedSampler, Prompt, Reply

CONTEXT_EXHAUSTED = "context_exhausted"  # `Reply.error` of a conversation that has no room for another reply


class TrainingError(UserError):
    """A stage that cannot be trained as asked, or that learned nothing."""


@dataclass(frozen=True)
class LoraSpec:
    """Low-rank adapters in place of full fine-tuning; merged into the weights when the stage ends."""

    rank: int = 16
    alpha: float = 32.0  # updates count alpha / rank times
    targets: str | tuple[str, ...] = "all-linear"  # or module names; never the output head, which TRL fuses


@dataclass(frozen=True)
class TrainSpec:
    """The settings of one stage.

    ``loss_type`` "dapo" averages over the tokens of an update (the token mean of verl and EasyR1, on which R-Zero was
    built); "grpo" averages over each completion first, then over completions (the GRPO paper). "cispo" (MiniMax-M1,
    section 3.1) is the token mean of ``min(ratio, ratio_max) * advantage * log p`` with a constant weight: no token
    loses its gradient, as tokens outside the clip of the other two do.
    """

    steps: int  # rollout batches
    prompts: int  # inputs in a rollout batch
    responses: int  # completions an input, the GRPO group; at least 2
    global_batch: int  # inputs in an optimiser update; a divisor of prompts
    micro_batch: int = 8  # completions in one forward-backward pass of a process, at most
    learning_rate: float = 1e-6  # AdamW, constant
    kl: float = 1e-2  # coefficient of the KL term to the policy at the start of the stage; 0 switches it off
    temperature: float = 1.0  # of sampling, and of the log-probabilities trained on; above 0
    top_p: float = 1.0  # nucleus cut of sampling; 1 is off
    top_k: int = 0  # tokens kept at each sampling step; 0 is off
    max_prompt_tokens: int = 2048  # rows with longer prompts are left out and counted, never cut
    max_new_tokens: int = 4096  # new tokens a completion, at most
    seed: int = 0
    lora: LoraSpec | None = None  # None: all weights are trained
    clip: float = 0.2  # dapo, grpo: PPO clipping range, the ratio counts within [1 - clip, 1 + clip]
    loss_type: Literal["dapo", "grpo", "cispo"] = "dapo"
    ratio_max: float = 5.0  # cispo: the most that a ratio weighs, at least 1; absolute, so that ratio 1 weighs 1
    max_grad_norm: float = 1.0
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU if there is one
    dtype: Literal["float32", "bfloat16"] = "float32"  # of arithmetic; full fine-tuning keeps float32 weights
    gradient_checkpointing: bool = False  # saves memory, costs a second forward pass
    sample_batch: int = 512  # sequences decoded together in one process
    template_options: dict[str, Any] = field(default_factory=dict)  # variables for the chat template
    trust_remote_code: bool = False  # run code that the model's repository carries

    @property
    def completions(self) -> int:
        """Completions in a rollout batch."""
        return self.prompts * self.responses

    @property
    def updates(self) -> int:
        """Optimiser updates in a rollout batch."""
        return self.prompts // self.global_batch

    def check(self, processes: int = 1) -> None:
        """Refuse what cannot be split into whole groups and equal shares, before any model is loaded.

        Raises:
            TrainingError: with the value met, the values allowed and what to do.
        """
        if self.responses < 2:
            raise TrainingError(
                f"responses is {self.responses}; a group of GRPO needs at least 2 to have a spread",
                "Set responses >= 2.",
            )
        small = [
            name
            for name in ("steps", "prompts", "global_batch", "micro_batch", "max_new_tokens", "sample_batch")
            if getattr(self, name) < 1
        ]
        if small:
            raise TrainingError(f"{small[0]} is {getattr(self, small[0])}; it must be at least 1")
        if not 0 <= self.seed < 2**32:
            raise TrainingError(f"seed is {self.seed}; it must lie in 0 to 4294967295")
        if self.temperature <= 0:
            raise TrainingError(
                f"temperature is {self.temperature}; completions of a group must be drawn, so set it above 0"
            )
        if not self.ratio_max >= 1:
            raise TrainingError(
                f"ratio_max is {self.ratio_max}; the cap is absolute, so below 1 it would shrink every update",
                "Set it to 1 or above: 5.0 is usual, 1 + e for a clip of e above 1.",
            )
        if self.prompts % self.global_batch:
            allowed = [n for n in range(1, self.prompts + 1) if self.prompts % n == 0]
            raise TrainingError(
                f"global_batch is {self.global_batch}; it does not divide the {self.prompts} prompts of a batch",
                f"Set it to one of {allowed}.",
            )
        update = self.global_batch * self.responses
        if update % processes:
            fitting = [
                n for n in range(1, self.prompts + 1) if self.prompts % n == 0 and n * self.responses % processes == 0
            ]
            raise TrainingError(
                f"an update of {self.global_batch} x {self.responses} completions has no {processes} equal shares",
                f"Set global_batch to one of {fitting}, or change the number of processes.",
            )

    def micro(self, processes: int = 1) -> int:
        """Return the completions of one forward-backward pass: they divide a process's share of an update."""
        share = self.global_batch * self.responses // processes
        return max(n for n in range(1, min(self.micro_batch, share) + 1) if share % n == 0)


@dataclass(frozen=True)
class TrainRow:
    """One prompt to train on, with what its reward needs."""

    prompt: Prompt
    payload: dict[str, Any] = field(default_factory=dict)  # handed to the reward as it is


@dataclass(frozen=True)
class Rollout:
    """One completion of a rollout batch."""

    row: int  # index into the rows that `train` was given
    prompt: Prompt
    payload: dict[str, Any]
    text: str  # special tokens left out
    finish_reason: FinishReason  # STOP or LENGTH
    completion_tokens: int  # the end token included


@dataclass(frozen=True)
class RolloutBatch:
    """All completions of one step, of all processes; groups of ``responses`` lie together."""

    step: int  # 1 for the first
    rollouts: tuple[Rollout, ...]


class BatchReward(Protocol):
    """Scores a whole rollout batch at once."""

    def __call__(self, batch: RolloutBatch) -> Sequence[float | None]:
        """Return one reward a rollout, in order; called once a step, on the main process only.

        None masks a completion: it is left out of its group's baseline and gets no gradient, neither from the reward
        nor from the KL term.
        """
        ...


class Conversations(Protocol):
    """Conversations of the policy with a world (an environment, a user, an examiner), advanced side by side.

    Each process advances those of its own places; nothing that an outcome depends on may hang on which places are
    advanced together.
    """

    def begin(self, step: int, places: Sequence[int], rows: Sequence[TrainRow]) -> Sequence[Prompt]:
        """Return the opening prompt of each place, as a rule its row's prompt, and forget the last step's places.

        Args:
            step: 1 for the first.
            places: this process's places; ``place // responses`` is the group.
            rows: the row of each place.
        """
        ...

    def answer(self, replies: Mapping[int, Reply], policy: KeyedSampler) -> Mapping[int, str | None]:
        """Take the policy's replies by place; return what the world says next as a user's turn, None: it is over.

        A reply has finish reason STOP; LENGTH: cut off at ``max_new_tokens``; or ERROR with error "context_exhausted":
        the policy was not asked, since the tokens so far leave no room for a reply. After an ERROR a conversation is
        over, whatever is returned.

        Args:
            replies: of every conversation that is not over.
            policy: samples with the current weights (for example a cross-check). Draws above temperature 0 hang on the
                keys given to ``sample_keyed``: pass places, so that they do not depend on the number of processes.
        """
        ...

    def outcomes(self, places: Sequence[int]) -> Sequence[Any]:
        """Return what the reward needs of each place; picklable, since it travels to the main process."""
        ...


SessionReward = Callable[[int, Sequence[Any]], Sequence[float | None]]
"""Scores (step, outcomes of all places of all processes, in order): one reward an outcome.

Called once a step, on the main process. None masks a conversation, as in `BatchReward`.
"""


@dataclass(frozen=True)
class LogRow:
    """One rollout step, as measured; means over updates are weighted equally."""

    step: int  # 1 for the first
    reward_mean: float | None  # over scored completions; None when none was scored
    reward_std: float | None  # sample standard deviation over scored completions; None below two
    scored: int  # completions with a reward
    masked: int  # completions whose reward is None
    groups: int  # groups of the batch
    zero_spread: int  # groups without a spread of rewards: nothing to learn from
    clipped: int  # completions cut off at max_new_tokens; conversations with a reply that was
    completion_tokens: int  # written by the policy, of the whole batch
    prompt_tokens: int  # of the whole batch, each completion's prompt counted
    loss: float  # mean over updates
    kl: float | None  # mean over updates of the estimate k3 a token; None when kl is 0
    entropy: float  # of the next-token distribution, mean over updates, in nats
    ratio_clipped: float  # share of the policy's tokens whose probability ratio met the clip; cispo: passed the cap
    grad_norm: float  # before clipping, mean over updates
    updates: int  # optimiser updates made
    seconds: float  # whole step, on the main process
    seconds_model: float  # of these inside the model: generation, forward, backward, optimiser
    seconds_reward: float  # of these inside the reward
    turns: float = 1.0  # replies of the policy a completion, mean
    world_tokens: int = 0  # after the opening prompts and not written by the policy: the world's turns, the template
    exhausted: int = 0  # conversations that ended for lack of context
    seconds_world: float = 0.0  # of the step inside the world's turns, the policy's own sampling excluded

    @property
    def completions(self) -> int:
        """Completions of the batch."""
        return self.scored + self.masked


@dataclass(frozen=True)
class TrainResult:
    """What a stage left."""

    checkpoint: Path  # a plain Hugging Face folder: safetensors, config, tokenizer
    log: tuple[LogRow, ...]  # one a rollout step
    seconds: float  # of `train`, saving and loading included, the import of TRL excluded
    seconds_in_model: float  # generation, forward, backward, optimiser
    seconds_in_reward: float
    parts: dict[str, float]  # seconds by name: generate, forward, backward, optimiser, reward, world
    tokens: int  # completion tokens generated by the policy
    left_out: tuple[int, ...]  # rows whose prompt is empty or over max_prompt_tokens
    notes: tuple[str, ...]  # what the user should know: rows left out, repeated, completions cut off
