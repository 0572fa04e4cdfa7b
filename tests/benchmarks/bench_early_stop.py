"""Tokens that the early stop saves, and that it changes nothing, on a finished run.

    selfevolve run testbed/r_quest --out RUN
    python tests/benchmarks/bench_early_stop.py RUN [--rounds 1 4 7 10]

The recorded candidates of the questioner's steps and of the pool are assessed anew by the round's own checkpoints, once in
full (every vote, every solution) and once with the early stop, with the seeds of the run. Rewards of the questioner's
candidates, and decisions, pseudo-labels and shares of the pool, must be equal; the last line is one JSON object with the
tokens by stage and step, and the ratio of all tokens to those of the full assessment.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from selfevolve.records import Assessed, Candidate
from selfevolve.rundir import RunDir
from selfevolve.stages.context import Context


def batches(ctx: Context) -> list[tuple[str, int, bool, list[Candidate]]]:
    """Return (stage, seed, rewarded, candidates) of every batch that the round assessed."""
    steps: dict[int, list[Candidate]] = {}
    for row in ctx.run.read(ctx.round, "questioner", "assessed.jsonl"):
        steps.setdefault(row["step"], []).append(Candidate.from_json(row))
    found = [("questioner", ctx.seed("questioner", step), True, batch) for step, batch in sorted(steps.items())]
    pool = [Candidate.from_json(row) for row in ctx.run.read(ctx.round, "candidates", "candidates.jsonl")]
    return [*found, ("assessment", ctx.seed("assessment"), False, pool)]


def outcome(found: list[Assessed], rewarded: bool) -> list[Any]:
    """Return what the assessment decides."""
    if rewarded:
        return [a.reward.total if a.reward else None for a in found]
    return [(a.decision.value, a.solutions and (a.solutions.vote.answer, a.solutions.vote.share)) for a in found]


def main() -> None:
    """Assess the rounds named on the command line both ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--rounds", type=int, nargs="+", default=[1, 4, 7, 10])
    args = parser.parse_args()
    run = RunDir.open(args.run)
    tokens: dict[str, Counter[str]] = {"full": Counter(), "early": Counter()}
    questions = differing = 0
    for number in args.rounds:
        ctx = Context(run, number)
        for stage, seed, rewarded, batch in batches(ctx):
            seen = {}
            for way in ("full", "early"):
                assessor = ctx.assessor(rewarded)
                changed = {**vars(assessor.settings), "early_stop": way == "early"}
                assessor.settings = type(assessor.settings)(**changed)
                seen[way] = outcome(assessor.assess(batch, seed=seed, rewarded=rewarded), rewarded)
                for step, spent in assessor.usage.tokens.items():
                    tokens[way][f"{stage} {step}"] += spent
            questions += len(batch)
            differing += sum(a != b for a, b in zip(seen["full"], seen["early"], strict=True))
        print(f"round {number}: {questions} candidates so far, {differing} with another outcome", flush=True)
    full, early = (sum(tokens[way].values()) for way in ("full", "early"))
    print(
        json.dumps(
            {
                "benchmark": "early_stop", "reference": "full assessment", "run": run.recipe.name, "rounds": args.rounds,
                "candidates": questions, "differing": differing, "tokens_full": full, "tokens_early": early,
                "ratio": round(early / full, 4), "by_step": {k: [v, tokens["early"][k]] for k, v in tokens["full"].items()},
            }
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
