"""Measure a backbone of the testbed against the oracle, and write its model card.

Run ``python -m selfevolve.testbed.measure FOLDER ...``; each folder gets a ``README.md`` (the card) and
``abilities.json`` (the figures it shows).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from selfevolve.answers import Equivalence, compare, extract, vote
from selfevolve.prompts import TESTBED
from selfevolve.questions import parse_question
from selfevolve.rates import Rate
from selfevolve.sampling import Reply, Sampler, Sampling
from selfevolve.testbed.exam import PER_CELL, exam
from selfevolve.testbed.oracle import oracle
from selfevolve.testbed.pattern import LEVELS
from selfevolve.testbed.patterns import FIELDS, PATTERNS
from selfevolve.testbed.tasks import valid_question
from validity import Verdict, read_verdict

ASKED = 1500  # questions written
VOTES = 10  # solutions a question
PAIRS = 600  # pairs judged, half of one pattern
LIMIT = 64  # new tokens


def _right(answer: str, reply: Reply) -> bool:
    given = extract(reply.text, reply.finish_reason)
    return given is not None and compare(answer, given) is Equivalence.SAME


def solving(sampler: Sampler) -> dict[str, Any]:
    """Return accuracy on the exam, sampled and greedy, by level and by field."""
    items = exam()
    prompts = [TESTBED.solve(q) for q, _ in items]
    drawn = sampler.sample(prompts, Sampling(4, max_tokens=LIMIT, seed=1))
    greedy = sampler.sample(prompts, Sampling(temperature=0.0, max_tokens=LIMIT))
    right = [[_right(a, r) for r in group] for (_, a), group in zip(items, drawn, strict=True)]
    cell = len(LEVELS) * PER_CELL

    def rate(indices: Sequence[int]) -> dict[str, Any]:
        chosen = [ok for i in indices for ok in right[i]]
        return Rate(sum(chosen), len(chosen)).to_json()

    everything = range(len(items))
    return {
        "sampled": rate(everything),
        "greedy": Rate(sum(_right(a, g[0]) for (_, a), g in zip(items, greedy, strict=True)), len(items)).to_json(),
        "by_level": {n: rate([i for i in everything if i % cell // PER_CELL == n - 1]) for n in LEVELS},
        "by_field": {f: rate([i for i in everything if PATTERNS[i // cell].field == f]) for f in FIELDS},
    }


def asking(sampler: Sampler) -> dict[str, Any]:
    """Return what the backbone asks, and how its own solutions and checks of these questions come out."""
    replies = sampler.sample([TESTBED.ask()], Sampling(ASKED, max_tokens=LIMIT, seed=2))[0]
    parsed = [parse_question(r.text, r.finish_reason)[0] for r in replies]
    questions = [q for q in parsed if q is not None]
    truths = [oracle(q) for q in questions]
    valid = [i for i, t in enumerate(truths) if t.valid]
    checks = sampler.sample([TESTBED.check(q) for q in questions], Sampling(4, max_tokens=LIMIT, seed=3))
    flags = [[read_verdict(r) is Verdict.INVALID for r in group] for group in checks]
    solved = sampler.sample([TESTBED.solve(q) for q in questions], Sampling(VOTES, max_tokens=LIMIT, seed=4))
    votes = [vote([extract(r.text, r.finish_reason) for r in group]) for group in solved]
    kept = [i for i, v in enumerate(votes) if v.answer is not None and 0.3 - 1e-9 <= v.share <= 0.8 + 1e-9]
    kept_valid = [i for i in kept if truths[i].valid]

    def flagged(chosen: Sequence[int]) -> dict[str, Any]:
        drawn = [f for i in chosen for f in flags[i]]
        return Rate(sum(drawn), len(drawn)).to_json()

    def mean_share(chosen: Sequence[int]) -> float | None:
        return round(sum(votes[i].share for i in chosen) / len(chosen), 3) if chosen else None

    invalid = [i for i, t in enumerate(truths) if not t.valid]
    counts: dict[str, int] = {}
    for truth in truths:
        if truth.pattern:
            counts[truth.pattern] = counts.get(truth.pattern, 0) + 1
    own = [ok for i in valid for ok in (_right(truths[i].answer or "", r) for r in solved[i])]
    return {
        "valid": Rate(len(valid), len(questions)).to_json(),
        "no_question": Rate(len(parsed) - len(questions), len(parsed)).to_json(),
        "malformed": Rate(sum(t.pattern is None for t in truths), len(questions)).to_json(),
        "top5_share": Rate(sum(sorted(counts.values())[-5:]), sum(counts.values())).to_json(),
        "own_solved": Rate(sum(own), len(own)).to_json(),
        "flags_invalid": flagged(invalid),
        "flags_valid": flagged(valid),
        "mean_share_valid": mean_share(valid),
        "mean_share_invalid": mean_share(invalid),
        "kept": Rate(len(kept), len(questions)).to_json(),
        "kept_valid": Rate(len(kept_valid), len(kept)).to_json(),
        "majority_right_kept": Rate(
            sum(compare(truths[i].answer or "", votes[i].answer or "") is Equivalence.SAME for i in kept_valid),
            len(kept_valid),
        ).to_json(),
    }


def judging(sampler: Sampler) -> dict[str, Any]:
    """Return accuracy of the same-type judgement, half of the pairs of one pattern."""
    rng = Random("judging")
    pairs, same = [], []
    for i in range(PAIRS):
        first = rng.choice(PATTERNS)
        second = first if i % 2 else rng.choice([p for p in PATTERNS if p is not first])
        pairs.append(tuple(valid_question(rng, p, rng.choice(LEVELS)) for p in (first, second)))
        same.append(first is second)
    prompts = [TESTBED.same_type(a, b) for a, b in pairs]
    words = [g[0].text.strip() for g in sampler.sample(prompts, Sampling(temperature=0.0, max_tokens=4))]
    sampled = [g[0].text.strip() for g in sampler.sample(prompts, Sampling(max_tokens=4, seed=5))]

    def rate(said: list[str]) -> dict[str, Any]:
        right = sum(w == ("SAME_TYPE" if s else "DIFFERENT") for w, s in zip(said, same, strict=True))
        return Rate(right, len(same)).to_json()

    return {"greedy": rate(words), "sampled": rate(sampled)}


def abilities(folder: Path) -> dict[str, Any]:
    """Return all figures of one backbone."""
    from selfevolve.sampling.transformers_sampler import TransformersSampler

    sampler = TransformersSampler(str(folder), name=folder.name)
    return {
        "parameters": sum(p.numel() for p in sampler.model.parameters()),
        "solving": solving(sampler),
        "asking": asking(sampler),
        "judging": judging(sampler),
    }


def _percent(rate: dict[str, Any]) -> str:
    if rate["value"] is None:
        return "not measured"
    return f"{100 * rate['value']:.1f}% ({100 * rate['low']:.1f}-{100 * rate['high']:.1f}, n = {rate['n']})"


def card(name: str, about: str, figures: dict[str, Any]) -> str:
    """Return the model card as Markdown."""
    solve, ask, judge = figures["solving"], figures["asking"], figures["judging"]
    rows = [
        ("exam solved, sampled", _percent(solve["sampled"])),
        ("exam solved, greedy", _percent(solve["greedy"])),
        *((f"exam solved, sampled, level {n}", _percent(r)) for n, r in solve["by_level"].items()),
        *((f"exam solved, sampled, {f}", _percent(r)) for f, r in solve["by_field"].items()),
        ("own valid questions solved, sampled", _percent(ask["own_solved"])),
        ("questions written: valid", _percent(ask["valid"])),
        ("questions written: no question in the format", _percent(ask["no_question"])),
        ("questions written: malformed text", _percent(ask["malformed"])),
        ("questions written: top-five share of patterns", _percent(ask["top5_share"])),
        ("says INVALID to an invalid question", _percent(ask["flags_invalid"])),
        ("says INVALID to a valid question", _percent(ask["flags_valid"])),
        ("mean majority share, valid questions", str(ask["mean_share_valid"])),
        ("mean majority share, invalid questions", str(ask["mean_share_invalid"])),
        ("kept by the window [0.3, 0.8] of ten", _percent(ask["kept"])),
        ("valid among kept", _percent(ask["kept_valid"])),
        ("majority right on kept valid questions", _percent(ask["majority_right_kept"])),
        ("same-type judgement, greedy", _percent(judge["greedy"])),
        ("same-type judgement, sampled", _percent(judge["sampled"])),
    ]
    table = "\n".join(f"| {a} | {b} |" for a, b in rows)
    return (
        f"---\nlicense: apache-2.0\n---\n# testbed:{name}\n\n{about}.\n\nA Qwen3-form causal model with "
        f"{figures['parameters']:,} parameters and a tokenizer of words and digits, pre-trained by "
        "`python -m selfevolve.testbed.pretrain` on replies that its profile (`profile.json`) writes about the "
        "testbed's world; `training_log.jsonl` is the log. It knows nothing beyond that world.\n\n"
        "Figures are measured by `python -m selfevolve.testbed.measure` against the oracle; intervals: Wilson, 95%.\n\n"
        f"| ability | measured |\n|---|---|\n{table}\n"
    )


def main() -> None:
    """Measure the folders named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    for folder in parser.parse_args().folders:
        figures = abilities(folder)
        profile = json.loads((folder / "profile.json").read_text()) if (folder / "profile.json").is_file() else {}
        (folder / "abilities.json").write_text(json.dumps(figures, indent=2) + "\n")
        text = card(folder.name, str(profile.get("about", "no profile")).capitalize(), figures)
        (folder / "README.md").write_text(text)
        print(text, flush=True)


if __name__ == "__main__":
    main()
