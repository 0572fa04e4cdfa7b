"""Stage 1: update the questioner against the last round's solver, or by Ask-E's game between two solvers."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from aske.reward import Memory
from novelty import ModelJudge
from selfevolve.assess import Assessor, Usage
from selfevolve.diagnostics import NothingToLearn
from selfevolve.diagnostics.monitor import align
from selfevolve.jsonl import write_json
from selfevolve.questions import read_candidate
from selfevolve.records import Assessed, Decision
from selfevolve.stages import ask_e
from selfevolve.stages.ask_e_sessions import Checked, Outcome
from selfevolve.stages.context import Context
from selfevolve.stages.training import run_conversations, run_training
from selfevolve.train import RolloutBatch, TrainRow

RECORDS = "assessed.jsonl"
STATE = "state.json"  # in a savepoint


def questioner(ctx: Context, folder: Path) -> dict[str, Any]:
    """Train the questioner; every candidate of every step stands in ``assessed.jsonl`` with its reward and terms."""
    settings = ctx.recipe.questioner
    assessor = ctx.assessor(rewarded=True)
    judge = assessor.ask_e
    policy = ctx.questioner(ctx.round - 1)
    spec = ctx.train_spec(settings, "questioner", ctx.recipe.generation.max_new_tokens.question)
    rows = [TrainRow(ctx.pack.ask())] * settings.prompts
    with (folder / RECORDS).open("w", encoding="utf-8") as records:
        spanning = _Spanning(assessor, records)

        def reward(batch: RolloutBatch) -> list[float | None]:
            candidates = [
                read_candidate(ctx.round, "questioner", batch.step, i, r.text, r.finish_reason.value)
                for i, r in enumerate(batch.rollouts)
            ]
            seed = ctx.seed("questioner", batch.step)
            return _written(ctx, assessor.assess(candidates, seed=seed, rewarded=True), records)

        def checked(step: int, outcomes: Sequence[Checked]) -> list[float | None]:
            candidates = [
                read_candidate(ctx.round, "questioner", step, i, o.reply.text, o.reply.finish_reason.value)
                for i, o in enumerate(outcomes)
            ]
            checks = {i: o.checks for i, o in enumerate(outcomes) if o.checks is not None}
            seed = ctx.seed("questioner", step)
            return _written(ctx, assessor.assess(candidates, seed=seed, rewarded=True, checks=checks), records)

        def sessions(step: int, outcomes: Sequence[Outcome]) -> list[float | None]:
            assert judge is not None
            candidates = [ask_e.candidate(ctx.round, step, i, o.record) for i, o in enumerate(outcomes)]
            played = [ask_e.result(o.record, judge.table) for o in outcomes]
            seed = ctx.seed("questioner", step)
            return _written(ctx, assessor.assess(candidates, seed=seed, rewarded=True, played=played), records)

        if judge is None or (not ctx.recipe.ask_e.probes and judge.cross_check is not None):
            counts = run_training(ctx, "questioner", policy, rows, reward, spec, folder, spanning)
        elif not ctx.recipe.ask_e.probes:
            world = ask_e.self_checked(ctx, judge.table)
            counts = run_conversations(ctx, "questioner", policy, rows, world, checked, spec, folder, spanning)
        else:
            game = ask_e.sessions(ctx, judge.table)
            opening = game.pack.open(game.rules.probes, game.rules.question_words)
            rows = [TrainRow(opening)] * settings.prompts
            counts = run_conversations(ctx, "questioner", policy, rows, game, sessions, spec, folder, spanning)
    if judge is not None and judge.memory is not None:
        judge.memory.save(folder / ask_e.MEMORY)
    return {**counts, "assessed": settings.steps * settings.prompts * settings.responses, "usage": vars(assessor.usage)}


@dataclass(frozen=True)
class _Spanning:
    """What spans the steps of the stage: the records, what was spent, verdicts on pairs, Ask-E's memory."""

    assessor: Assessor
    records: TextIO

    def save(self, folder: Path) -> None:
        self.records.flush()
        shutil.copyfile(self.records.name, folder / RECORDS)
        judge, game = self.assessor.novelty_judge, self.assessor.ask_e
        pairs = judge.remembered() if isinstance(judge, ModelJudge) else []
        write_json(folder / STATE, {"usage": vars(self.assessor.usage), "pairs": pairs})
        if game is not None and game.memory is not None:
            game.memory.save(folder / ask_e.MEMORY)

    def load(self, folder: Path) -> None:
        with (folder / RECORDS).open(encoding="utf-8") as saved:
            shutil.copyfileobj(saved, self.records)
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        self.assessor.usage = Usage(**state["usage"])
        judge, game = self.assessor.novelty_judge, self.assessor.ask_e
        if isinstance(judge, ModelJudge):
            judge.remember(state["pairs"])
        if game is not None and game.memory is not None and game.embed is not None:
            game.memory = Memory.load(folder / ask_e.MEMORY, game.embed)


def _written(ctx: Context, assessed: Sequence[Assessed], records: TextIO) -> list[float | None]:
    """Write the records of a step, and return its rewards; None masks a candidate."""
    truths = _exact_truths(ctx, [a.candidate.question for a in assessed])
    for a, truth in zip(assessed, truths, strict=True):
        records.write(json.dumps(a.to_json(truth), ensure_ascii=False) + "\n")
    records.flush()
    refuse_all_undecided(assessed)
    return [a.reward.total if a.reward else None for a in assessed]


def _exact_truths(ctx: Context, questions: list[str | None]) -> list[dict[str, Any] | None]:
    """Return the oracle's truths, which cost nothing; a model referee judges the round's pool only."""
    if ctx.referee is None or ctx.referee.source != "oracle":
        return [None] * len(questions)
    return ctx.referee.truths(questions)


def refuse_all_undecided(assessed: Sequence[Assessed]) -> None:
    """Stop a step none of whose questions could be decided: rewards of 0 would say nothing.

    Raises:
        NothingToLearn: with the reasons.
    """
    asked = [a for a in assessed if a.candidate.question is not None]
    reasons = Counter(a.reason for a in asked if a.decision in (Decision.UNDECIDED, Decision.UNGRADABLE))
    if not asked or reasons.total() < len(asked):
        return
    rows = [("questions", "undecided because"), *((str(n), reason) for reason, n in reasons.most_common(5))]
    raise NothingToLearn(
        f"none of the {len(asked)} questions of this step could be decided: rewards say nothing\n{align(rows)}",
        "The replies about them failed or cannot be read. On a server: its log in the run's folder servers/, and "
        "request_seconds of its backend; else longer replies (generation.max_new_tokens.solution) or other prompts.",
    )
