"""GRPO and CISPO with TRL: the only module that imports it.

TRL keeps the loss, the optimiser loop and the distribution over processes. Ours are the order of the rows, sampling
(shared prefixes, keyed random numbers), the reward of the whole batch, the advantages, and the checks around them.

One rollout batch is ``prompts x responses`` completions and serves ``prompts / global_batch`` optimiser updates. From
the second update on the policy is no longer the one that sampled: the ratio to the log-probabilities at sampling is
clipped (PPO) or capped (CISPO). The completions of a batch are shuffled before they are split into updates.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # rollout_func is marked experimental; the version is pinned

import torch
from datasets import Dataset
from transformers import AutoTokenizer
from transformers.trainer_callback import PrinterCallback
from trl import GRPOConfig, GRPOTrainer
from trl.models import unwrap_model_for_generation

from selfevolve.jsonl import disk_full_is_clear
from selfevolve.sampling.transformers_sampler import Formatter, TransformersSampler, end_ids, quiet_bars
from selfevolve.train import sharded
from selfevolve.train.conversations import ConversationMaker
from selfevolve.train.masked_loss import MaskedLoss
from selfevolve.train.policy import adapters, join_processes, load_policy, on_cpu, one_gpu_a_process, save_policy
from selfevolve.train.rollouts import Clock, LocalRollouts, Maker, RolloutMaker, Stage, length_warnings, make_plan
from selfevolve.train.savepoints import Saved, Savepoints
from selfevolve.train.saving import SaveByTime
from selfevolve.train.spec import (
    BatchReward,
    Conversations,
    LogRow,
    SessionReward,
    TrainingError,
    TrainResult,
    TrainRow,
    TrainSpec,
)
from selfevolve.train.step_log import IN_MODEL, StepLog, mean

logger = logging.getLogger(__name__)


def train(
    policy_path: Path,
    rows: Sequence[TrainRow],
    reward: BatchReward,
    spec: TrainSpec,
    out: Path,
    progress: Callable[[LogRow], None] | None = None,
    sampler: Callable[[Any, Any], Any] | None = None,
    savepoints: Savepoints | None = None,
) -> TrainResult:
    """Train a policy with GRPO and write it as a plain Hugging Face folder.

    The KL term's reference is the policy as it stands in ``policy_path``. With one process, the same arguments give the
    same weights, bit for bit (on a CPU with a fixed number of threads). The random state of torch, numpy and random is
    set on the way.

    Args:
        policy_path: a Hugging Face folder or hub id, weights and tokenizer.
        rows: what to train on.
        reward: called once a step with the whole batch, on the main process.
        spec: the settings.
        out: the folder to write; it must not exist. It appears complete or not at all.
        progress: called after each rollout step, on the main process.
        sampler: makes the sampler of rollouts from (live model, tokenizer); None: `TransformersSampler`.
        savepoints: where to save in between, and to go on from; none are made of weights that DeepSpeed shards.

    Raises:
        TrainingError: settings that do not fit together, no row that can be used, no trainable weight, a loss that is
            not finite, or a stage that changed no weight.
    """
    return _train(
        policy_path, rows, lambda stage: RolloutMaker(stage, reward), spec, out, progress, sampler, savepoints
    )


def train_conversations(
    policy_path: Path,
    rows: Sequence[TrainRow],
    conversations: Conversations,
    reward: SessionReward,
    spec: TrainSpec,
    out: Path,
    progress: Callable[[LogRow], None] | None = None,
    sampler: Callable[[Any, Any], Any] | None = None,
    savepoints: Savepoints | None = None,
) -> TrainResult:
    """Train a policy on conversations of several turns with a world; all else is as in `train`.

    Args:
        policy_path: a Hugging Face folder or hub id, weights and tokenizer.
        rows: what the conversations are about; one whose prompt is empty or too long is left out.
        conversations: the world; each process calls it for its own places.
        reward: called once a step with the outcomes of all processes' conversations, on the main process.
        spec: the settings.
        out: the folder to write; it must not exist. It appears complete or not at all.
        progress: called after each rollout step, on the main process.
        sampler: makes the sampler of rollouts from (live model, tokenizer); None: `TransformersSampler`.
        savepoints: where to save in between, and to go on from; none are made of weights that DeepSpeed shards.

    Raises:
        TrainingError: as `train`; also a world that returns another number of turns than it was asked for.
    """

    def make_maker(stage: Stage) -> ConversationMaker:
        return ConversationMaker(stage, conversations, reward)

    return _train(policy_path, rows, make_maker, spec, out, progress, sampler, savepoints)


def _train(
    policy_path: Path,
    rows: Sequence[TrainRow],
    make_maker: Callable[[Stage], Maker],
    spec: TrainSpec,
    out: Path,
    progress: Callable[[LogRow], None] | None,
    sampler: Callable[[Any, Any], Any] | None,
    savepoints: Savepoints | None,
) -> TrainResult:
    """Train on whatever rollouts the maker makes; see `train`."""
    start = perf_counter()
    spec.check()
    out = Path(out)
    if out.exists():
        raise TrainingError(f"{out} exists already", "Remove it, or name another folder.")
    if not rows:
        raise TrainingError("there are no rows to train on")
    state = join_processes(spec)
    spec.check(state.num_processes)
    tokenizer = AutoTokenizer.from_pretrained(str(policy_path), trust_remote_code=spec.trust_remote_code)
    formatter = Formatter(tokenizer, spec.template_options)
    with quiet_bars():
        model = load_policy(policy_path, spec)
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    plan = make_plan(rows, formatter.ids([row.prompt for row in rows]), spec, context)
    if state.is_main_process:
        for note in plan.notes:
            logger.log(logging.WARNING if plan.left_out and note == plan.notes[0] else logging.INFO, note)
    clock = Clock()
    process = (state.process_index, state.num_processes)
    maker = make_maker(Stage(rows, plan, spec, process, clock, formatter, end_ids(model, tokenizer), context))
    with tempfile.TemporaryDirectory() as scratch, quiet_bars():
        config = _config(spec, state.num_processes, scratch if savepoints is None else str(savepoints.folder))
        sharded.settle(config, spec)
        trainer = _Trainer(model, tokenizer, maker, sampler, progress, config)
        trainer.go(savepoints)
    if sharded.fingerprint(trainer.model, trainer.sharding, trainer.accelerator.device) == trainer.before:
        flat = sum(row.zero_spread for row in trainer.steps.rows)
        groups = sum(row.groups for row in trainer.steps.rows)
        raise TrainingError(
            f"no weight changed in {spec.steps} steps: {flat} of {groups} groups had no spread of rewards",
            "Look at the rewards, the clipped completions and the learning rate.",
        )
    limits = length_warnings(trainer.steps.rows, spec)
    if state.is_main_process:
        for note in limits:
            logger.warning(note)
    with quiet_bars():
        save_policy(trainer, tokenizer, out)
    return TrainResult(
        checkpoint=out,
        log=tuple(trainer.steps.rows),
        seconds=perf_counter() - start + trainer.seconds_before,
        seconds_in_model=clock.of(*IN_MODEL),
        seconds_in_reward=clock.of("reward"),
        parts=dict(clock.seconds),
        tokens=sum(row.completion_tokens for row in trainer.steps.rows),
        left_out=plan.left_out,
        notes=(*plan.notes, *limits),
    )


def _config(spec: TrainSpec, processes: int, scratch: str) -> Any:
    """Return TRL's configuration: every default that does not fit a stage is set here."""
    micro = spec.micro(processes)
    cpu = on_cpu(spec)
    half = spec.dtype == "bfloat16" and not sharded.autocast_by_deepspeed(spec)
    os.environ["ACCELERATE_MIXED_PRECISION"] = "bf16" if half else "no"  # the recipe decides, not accelerate's file
    config = GRPOConfig(
        output_dir=scratch,
        max_steps=spec.steps * spec.updates,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=spec.global_batch * spec.responses // (micro * processes),
        steps_per_generation=spec.completions // (micro * processes),
        num_generations=spec.responses,
        max_completion_length=spec.max_new_tokens,
        learning_rate=spec.learning_rate,
        lr_scheduler_type="constant",
        max_grad_norm=spec.max_grad_norm,
        beta=spec.kl,
        use_bias_correction_kl=False,  # the KL term of the GRPO paper
        epsilon=spec.clip,
        epsilon_high=spec.ratio_max if spec.loss_type == "cispo" else None,  # absolute in cispo, unlike epsilon
        loss_type=spec.loss_type,
        scale_rewards="none",  # the advantages are ours
        temperature=spec.temperature,  # of the log-probabilities; sampling is ours
        seed=spec.seed,
        use_cpu=cpu,
        bf16=half,
        gradient_checkpointing=spec.gradient_checkpointing,
        logging_strategy="steps",
        logging_steps=1,
        logging_nan_inf_filter=False,  # a loss that is not finite must be seen
        save_strategy="no",  # savepoints are ours: by time, and never of the last step
        ignore_data_skip=True,  # items are blanks that repeat from step to step
        report_to="none",
        disable_tqdm=True,
        shuffle_dataset=False,
        dataloader_pin_memory=not cpu,
        model_init_kwargs={"trust_remote_code": True} if spec.trust_remote_code else None,
    )
    one_gpu_a_process(config)
    return config


class _Trainer(MaskedLoss, GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer with our rollouts, advantages, log, clock and savepoints."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        maker: Maker,
        make_sampler: Callable[[Any, Any], Any] | None,
        progress: Callable[[LogRow], None] | None,
        config: Any,
    ) -> None:
        self.maker, self.clock, self.spec = maker, maker.clock, maker.spec
        self.make_sampler = make_sampler
        self.sampler: Any = None
        self.local: LocalRollouts | None = None
        self.kind = type(model)  # FSDP2 changes a model's class in place
        self.copy: sharded.WholeCopy | None = None  # what is sampled from, where the live weights are sharded
        self.before: Any = None  # fingerprint before the first update
        self.began = perf_counter()
        self.seconds_before = 0.0  # of the stage, up to the savepoint that it goes on from
        self.savepoints: Savepoints | None = None
        self.saved: Saved | None = None  # what the stage goes on from
        super().__init__(
            model=model,
            reward_funcs=_no_reward,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": ["-"]}),  # TRL asks for one; `get_train_dataloader` has the rows
            processing_class=tokenizer,
            peft_config=adapters(maker.spec),
            rollout_func=_roll_out,
        )
        self.remove_callback(PrinterCallback)
        self.sharding = sharded.sharding_of(self.accelerator)
        if self.sharding is sharded.Sharding.FSDP2 and self.ref_model is not None:
            sharded.fill_reference(self.accelerator, self.ref_model, self.model)
        if not any(parameter.requires_grad for parameter in self.model.parameters()):
            raise TrainingError("the policy has no trainable weight", "Load it without frozen parameters.")
        self.steps = StepLog(self.clock, self.spec.updates, progress if self.accelerator.is_main_process else None)
        self._time_backward()

    def go(self, savepoints: Savepoints | None) -> None:
        """Train to the end, from the newest savepoint if there is one."""
        if savepoints is None or self.sharding in (sharded.Sharding.ZERO, sharded.Sharding.ZERO3):
            self.train()
            return
        self.savepoints, self.saved = savepoints, savepoints.latest()
        self.add_callback(SaveByTime(savepoints.minutes, self.spec.updates))
        if self.saved is None:
            self.train()
            return
        saved = self.saved
        saved.refuse_other(self.sharding.value)
        logger.info("going on after step %d of %d, from %s", saved.step, self.spec.steps, saved.folder)
        self.steps.rows += saved.log
        self.clock.seconds.update(saved.clock)
        self.before, self.seconds_before = saved.before, saved.seconds
        self.train(resume_from_checkpoint=str(saved.folder))

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write none: a savepoint is no model to publish."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """As the trainer's, then what makes it a savepoint."""
        assert self.savepoints is not None
        with disk_full_is_clear(self.savepoints.folder):
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.accelerator.is_main_process:
                folder = self.savepoints.folder / f"checkpoint-{self.state.global_step}"
                seconds = perf_counter() - self.began + self.seconds_before
                clock = self.clock.seconds
                facts = {"clock": clock, "seconds": seconds, "before": self.before, "sharding": self.sharding.value}
                self.savepoints.complete(folder, self.steps.rows, **facts)

    def _time_backward(self) -> None:
        backward = self.accelerator.backward

        def timed(*args: Any, **kwargs: Any) -> None:
            with self.clock.part("backward"):
                backward(*args, **kwargs)

        self.accelerator.backward = timed

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        optimiser = super().create_optimizer(*args, **kwargs)
        step = optimiser.step

        def timed(*inner: Any, **options: Any) -> Any:
            with self.clock.part("optimiser"):
                return step(*inner, **options)

        optimiser.step = timed
        return optimiser

    def get_train_dataloader(self) -> Any:
        """Return one item a micro-step; the rows come from the plan, so an item only has the right length."""
        size = self.spec.completions // self.accelerator.num_processes
        full, empty = [{"prompt": "-"}] * size, [{"prompt": "-"}]
        per_step = self.args.steps_per_generation
        items = [full if i % per_step == 0 else empty for i in range(self.spec.steps * per_step)]
        return torch.utils.data.DataLoader(items, batch_size=None, collate_fn=_as_it_is)

    @contextmanager
    def ready(self) -> Any:
        """Make the policy one that can be sampled from: no checkpointing, the trainer's number types."""
        with ExitStack() as stack:
            if self.copy is None:
                stack.enter_context(unwrap_model_for_generation(self.model_wrapped, self.accelerator))
            kind, half = self.accelerator.device.type, self.spec.dtype == "bfloat16"
            stack.enter_context(torch.autocast(kind, dtype=torch.bfloat16, enabled=half))
            yield

    def roll_out(self) -> LocalRollouts:
        """Make the next rollout batch with the current weights."""
        step = self.steps.begin()
        with self.clock.part("gather"):
            if self.sampler is None:  # the first batch: the weights are sharded by now
                policy = self.accelerator.unwrap_model(self.model)
                self.copy = sharded.begin(policy, self.kind, self.spec, self.sharding, self.accelerator)
                if self.saved is None:
                    self.before = sharded.fingerprint(self.model, self.sharding, self.accelerator.device)
                else:  # once more: the trainer drew a random number since it restored the state
                    self._load_rng_state(str(self.saved.folder))
                make = self.make_sampler or self._own_sampler
                self.sampler = make(policy if self.copy is None else self.copy.model, self.processing_class)
            elif self.copy is not None:
                self.copy.refresh()
        self.local = self.maker.make(step, self.sampler, self.ready)
        return self.local

    def _own_sampler(self, policy: Any, tokenizer: Any) -> TransformersSampler:
        return TransformersSampler(
            policy, tokenizer, name="policy", batch=self.spec.sample_batch, template_options=self.spec.template_options
        )

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        assert self.local is not None
        output["advantages"] = torch.tensor(self.local.advantages, device=self.accelerator.device)
        return output

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Collect the figures of one update, and close the row of a step after its last one."""
        if "loss" not in logs:
            return
        collected = {name: mean(values) for name, values in self._metrics["train"].items()}
        self._metrics["train"].clear()
        figures = {**collected, **{name: float(value) for name, value in logs.items()}}
        self.steps.add(figures, self.state.global_step, self.maker.facts)


def _roll_out(_prompts: list[Any], trainer: _Trainer) -> dict[str, Any]:
    """Answer TRL's ``rollout_func``; TRL keeps ``env_mask`` as ``tool_mask`` and leaves its zeros out of the loss."""
    local = trainer.roll_out()
    return {
        "prompt_ids": local.prompt_ids,
        "completion_ids": local.completion_ids,
        "logprobs": None,
        "env_mask": local.mask,
    }


def _no_reward(prompts: list[Any], **_: Any) -> list[float]:
    """Stand in for TRL's reward function: the reward is computed with the rollouts."""
    return [0.0] * len(prompts)


def _as_it_is(item: Any) -> Any:
    return item
