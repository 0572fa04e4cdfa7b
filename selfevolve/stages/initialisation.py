"""Stage 0: teach the solver to reject invalid questions (R-Quest, section 3.1 and appendix A)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from selfevolve.answers import compare, extract
from selfevolve.backbones import SHIPPED
from selfevolve.errors import UserError
from selfevolve.sampling import FinishReason
from selfevolve.stages.context import Context
from selfevolve.stages.training import run_training
from selfevolve.train import Rollout, RolloutBatch, TrainRow
from validity import InitialisationExample, Split, initialisation_reward, read_examples

TESTBED_DATA = SHIPPED.parent / "initialisation.jsonl"


def read_initialisation_data(data: str) -> list[InitialisationExample]:
    """Return the labelled questions that a recipe names: 'testbed', or a path.

    Raises:
        UserError: the file is not there, or a line of it is no example.
    """
    path = TESTBED_DATA if data == "testbed" else Path(data)
    if not path.is_file():
        raise UserError(
            f"initialisation.data is {data!r}, but {path} does not exist", "give a JSONL file, or set it to testbed"
        )
    try:
        return read_examples(path)
    except ValueError as error:  # a line that is no example, or no UTF-8 text
        raise UserError(f"initialisation.data is {data!r}: {error}", "mend the line, or the file") from None


def validity_reward(rollout: Rollout) -> float | None:
    """Return the initialisation's reward of one completion; also the reward of replay.

    A reply cut off at the token limit has no box; one that failed is masked.
    """
    if rollout.finish_reason not in (FinishReason.STOP, FinishReason.LENGTH):
        return None
    answer = extract(rollout.text, rollout.finish_reason)
    return initialisation_reward(answer, rollout.payload["answer"], compare)


def initialisation(ctx: Context, folder: Path) -> dict[str, Any]:
    """Train the initial solver into ``folder/checkpoint`` and return counts; does nothing where it is switched off."""
    settings = ctx.recipe.initialisation
    if not settings.enabled:
        return {"enabled": False}
    examples = [e for e in read_initialisation_data(settings.data) if e.split is Split.TRAIN]
    if not examples:
        raise UserError(f"{settings.data} holds no training examples", "write it with split 'train' and 'held_out'")
    rows = [TrainRow(ctx.pack.check(e.question), {"answer": e.answer}) for e in examples]

    def reward(batch: RolloutBatch) -> list[float | None]:
        return [validity_reward(r) for r in batch.rollouts]

    spec = ctx.train_spec(settings, "initialisation", ctx.recipe.generation.max_new_tokens.solution)
    counts = run_training(ctx, "initialisation", ctx.base, rows, reward, spec, folder)
    with (folder / "data.jsonl").open("w", encoding="utf-8") as out:
        for e in examples:
            out.write(json.dumps({"question": e.question, "answer": e.answer, "error_type": e.error_type}) + "\n")
    return {"enabled": True, "examples": len(examples), **counts}
