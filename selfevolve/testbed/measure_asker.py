"""Measure the testbed's asker in Ask-E sessions with the other backbones, and write its model card.

Run ``python -m selfevolve.testbed.measure_asker FOLDER``: the folder gets ``README.md`` (the card), ``abilities.json``
and a session in full (``transcript.md``). The backbone's other abilities are measured as `selfevolve.testbed.measure`
does.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from aske import AskePack, Label, Rules, Samplings, Seat, Seats, SessionRecord, Slot, load_pack, play
from aske.labels import Mark
from aske.statistics import LOST, Resample, chance_line
from selfevolve.answers import Equivalence, compare, extract
from selfevolve.backbones import SHIPPED
from selfevolve.rates import Rate
from selfevolve.sampling import Prompt, Reply, Sampler, Sampling
from selfevolve.testbed.measure import abilities, card
from selfevolve.testbed.oracle import Truth, oracle
from selfevolve.testbed.sessions import RIGHT, Move

POOL = ("rung-1", "rung-2", "base", "rung-4", "numbers", "stories")
CROSS_CHECK = "rung-4"
CONTEXT = 1024
SESSIONS = 20  # a pair and number of probes
RESAMPLES = 8  # fresh solutions of a final question by each solver of its pair
SAMPLINGS = Samplings(
    Sampling(temperature=1.0, max_tokens=128),
    Sampling(temperature=0.7, max_tokens=72),
    Sampling(temperature=0.3, max_tokens=72),  # three replies must agree
)
_NUMBERS = r"<solver{}>[^<#]*(<right>|<wrong>)"
_STATED = re.compile(
    rf"#Reasoning#\s*(?:{_NUMBERS.format(1)}\s*{_NUMBERS.format(2)}\s*)?(<keep>|<change>|<harder>|<easier>)"
)


# ---------------------------------------------------------------- sessions


def sampler_of(folder: Path) -> Any:
    """Return the sampler of a backbone."""
    from selfevolve.sampling.transformers_sampler import TransformersSampler

    return TransformersSampler(str(folder), name=folder.name)


def seats(asker: Any, solvers: Mapping[str, Sampler]) -> Seats:
    """Return who sits where; the asker's context is counted in its own tokens."""

    def count(prompt: Prompt) -> int:
        return len(asker.prompt_ids([prompt])[0])

    return Seats(asker, solvers, solvers[CROSS_CHECK], CONTEXT, count)


def sessions(at: Seats, probes: int, each: int = SESSIONS, seed: int = 1) -> list[SessionRecord]:
    """Play `each` sessions with every pair of the pool; Solver 1 is the pair's second in every other one."""
    slots = [
        Slot(f"{at.asker.name}/{a}+{b}/{i}", (a, b), i, flip=i % 2 == 1)
        for a, b in combinations(at.solvers, 2)
        for i in range(each)
    ]
    return play(slots, at.asker.name, at, load_pack("testbed"), Rules(probes=probes), SAMPLINGS, seed=seed)


def resamples(
    records: Sequence[SessionRecord], solvers: Mapping[str, Sampler], pack: AskePack, m: int = RESAMPLES
) -> list[Resample | None]:
    """Return `m` fresh solutions of each final question by its pair, against the cross-check's answer.

    A session without a graded question is `LOST`; one that is ungradable is None.
    """
    found: list[Resample | None] = [None if not r.label.counted else LOST for r in records]
    graded = [i for i, r in enumerate(records) if r.grade.marks and r.label.counted]
    right: dict[tuple[int, str], tuple[int, int]] = {}
    for name, sampler in solvers.items():
        mine = [i for i in graded if name in records[i].pair]
        prompts = [pack.solver(records[i].question or "") for i in mine]
        drawn = sampler.sample(prompts, replace(SAMPLINGS.boundary, n=m, seed=77)) if mine else []
        for i, group in zip(mine, drawn, strict=True):
            whole = [r for r in group if r.complete]
            right[i, name] = sum(same(records[i].grade.answer, r) for r in whole), len(whole)
    for i in graded:
        a, b = records[i].pair
        found[i] = Resample(*right[i, a], *right[i, b])
    return found


def same(answer: str | None, reply: Reply) -> bool:
    """Return whether a reply gives this answer."""
    given = extract(reply.text, reply.finish_reason)
    return answer is not None and given is not None and compare(answer, given) is Equivalence.SAME


# ---------------------------------------------------------------- turns


@dataclass(frozen=True)
class Told:
    """One turn of the asker with what it was told before, and what it says of it."""

    final: bool
    wellformed: bool
    question: str | None
    truth: Truth | None  # the oracle's; None without a question
    draft: str | None  # its answer to its own question
    agreed: tuple[bool, bool] | None  # solver 1 and 2 gave the last draft's answer; None: nothing was shown
    said: tuple[bool, bool] | None  # what the turn's marks say of that; None where it has none
    move: Move | None  # None where it states none
    split: bool  # any probe before split the pair, by the drafts
    repeats: bool | None  # the pattern is the last probe's; None where either has no pattern


def told(record: SessionRecord) -> Iterator[Told]:
    """Read the turns of a session, in order."""
    texts = [m.content for m in record.transcript if m.role == "assistant"]
    shown: dict[int, dict[Seat, Reply]] = {}
    for call in record.calls:
        if call.seat in (Seat.BOUNDARY_A, Seat.BOUNDARY_B):
            shown.setdefault(call.turn, {})[call.seat] = call.replies[0]
    order = (Seat.BOUNDARY_B, Seat.BOUNDARY_A) if record.flip else (Seat.BOUNDARY_A, Seat.BOUNDARY_B)
    split, before, pattern = False, None, None
    for i, (text, turn) in enumerate(zip(texts, record.turns, strict=False)):
        stated = _STATED.search(text)
        truth = oracle(turn.question) if turn.question is not None else None
        now = truth.pattern if truth is not None else None
        yield Told(
            i == record.rules.probes, turn.malformed is None, turn.question, truth, turn.draft_answer, before,
            (stated[1] == RIGHT, stated[2] == RIGHT) if stated and stated[1] else None,
            Move(stated[3]) if stated else None, split, None if now is None or pattern is None else now == pattern,
        )  # fmt: skip
        replies, pattern, before = shown.get(i + 1), now, None
        if replies and turn.draft_answer is not None:
            agreed = [same(turn.draft_answer, replies[seat]) for seat in order]
            before = (agreed[0], agreed[1])
            split = split or agreed[0] != agreed[1]


def _rate(values: Sequence[bool]) -> dict[str, Any]:
    return Rate(sum(values), len(values)).to_json()


def _right(turn: Told) -> bool:
    answer = turn.truth.answer if turn.truth is not None else None
    return None not in (answer, turn.draft) and compare(answer or "", turn.draft or "") is Equivalence.SAME


def playing(turns: Sequence[Told]) -> dict[str, Any]:
    """Return how the asker plays: form, questions, drafts, reading, and what it does next."""
    read = [(a, s) for t in turns if t.agreed and t.said for a, s in zip(t.agreed, t.said, strict=True)]
    after = [t for t in turns if t.agreed and t.said]

    def moved(move: Move, chosen: Sequence[Told]) -> dict[str, Any]:
        return _rate([t.move is move for t in chosen])

    def obeyed(moves: tuple[Move, ...], repeats: bool) -> dict[str, Any]:
        return _rate([t.repeats is repeats for t in after if t.move in moves and not t.final and t.repeats is not None])

    probing = [t for t in after if not t.final]
    return {
        "wellformed": _rate([t.wellformed for t in turns]),
        "valid": _rate([t.truth is not None and t.truth.valid for t in turns if t.question is not None]),
        "draft_right": _rate([_right(t) for t in turns if t.truth is not None and t.truth.valid]),
        "states_what_it_read": _rate([t.said is not None for t in turns if t.agreed]),
        "reads_right": _rate([s for a, s in read if a]),
        "reads_wrong": _rate([not s for a, s in read if not a]),
        "reads_both": _rate([t.agreed == t.said for t in after]),
        "keeps_after_split": moved(Move.KEEP, [t for t in probing if t.agreed and t.agreed[0] != t.agreed[1]]),
        "keeps_at_final_after_split": moved(Move.KEEP, [t for t in after if t.final and t.split]),
        "harder_after_two_right": moved(Move.HARDER, [t for t in probing if t.agreed == (True, True)]),
        "easier_after_two_wrong": moved(Move.EASIER, [t for t in probing if t.agreed == (False, False)]),
        "same_pattern_when_it_says_so": obeyed((Move.KEEP, Move.HARDER, Move.EASIER), True),
        "other_pattern_when_it_says_so": obeyed((Move.CHANGE,), False),
    }  # fmt: skip


# ---------------------------------------------------------------- outcomes


def outcomes(records: Sequence[SessionRecord], fresh: Sequence[Resample | None]) -> dict[str, Any]:
    """Return the calibrated rate with its chance line, over all pairs and by pair, and the counts of labels."""

    def cell(chosen: Sequence[int]) -> dict[str, Any]:
        counted = [records[i] for i in chosen if records[i].label.counted]
        line = chance_line([f for i in chosen if (f := fresh[i]) is not None])
        return {
            "calibrated": _rate([r.label is Label.CALIBRATED for r in counted]),
            "chance": line.copies.value,
            "expected": line.pair.value,
        }

    pairs = sorted({r.pair for r in records})
    labels = {label.value: sum(r.label is label for r in records) for label in Label}
    truths = [oracle(r.question or "") for r in records]
    graded = [(t, r) for t, r in zip(truths, records, strict=True) if r.grade.answer is not None]
    return {
        **cell(range(len(records))),
        "labels": labels,
        "final_valid": _rate([t.valid for t, r in zip(truths, records, strict=True) if r.question is not None]),
        "cross_check_true": _rate([t.answer == r.grade.answer for t, r in graded if t.valid]),
        "only_one_right": {
            name: sum(r.label is Label.CALIBRATED and _winner(r) == name for r in records) for name in POOL
        },
        "pairs": {"+".join(p): cell([i for i, r in enumerate(records) if r.pair == p]) for p in pairs},
    }


def _winner(record: SessionRecord) -> str:
    return record.pair[record.grade.marks.index(Mark.RIGHT)]


def asker_abilities(
    folder: Path, solvers: Path = SHIPPED, each: int = SESSIONS
) -> tuple[dict[str, Any], SessionRecord]:
    """Return the figures of Ask-E sessions with 4, 3 and 0 probes, and one session to show."""
    pool = {name: sampler_of(solvers / name) for name in POOL}
    at = seats(sampler_of(folder), pool)
    figures: dict[str, Any] = {"cross_check": CROSS_CHECK, "pool": list(POOL), "sessions_a_pair": each}
    turns: list[Told] = []
    example = None
    for probes in (4, 3, 0):
        records = sessions(at, probes, each)
        fresh = resamples(records, pool, load_pack("testbed"))
        figures[f"probes_{probes}"] = outcomes(records, fresh)
        turns += [t for r in records for t in told(r)]
        example = example or next(filter(worth_showing, records), records[0])
    assert example is not None
    return {**figures, "playing": playing(turns)}, example


def worth_showing(record: SessionRecord) -> bool:
    """Return whether the asker kept a question that split the pair to the end, and was right to."""
    last = list(told(record))[-1]
    split = last.agreed is not None and last.agreed[0] != last.agreed[1]
    kept = last.final and last.move is Move.KEEP and bool(last.repeats) and split and last.agreed == last.said
    return kept and record.label is Label.CALIBRATED and not record.malformed


# ---------------------------------------------------------------- the card


def transcript(record: SessionRecord) -> str:
    """Return a session in full, as Markdown."""
    names = {"user": "game", "assistant": "asker"}
    lines = [f"{names[m.role]:<6}{m.content}" for m in record.transcript]
    answers = " and ".join(f"{name} {answer}" for name, answer in zip(record.pair, record.grade.answers, strict=True))
    lines.append(f"graded {answers}; cross-check {record.grade.answer}: {record.label.value}")
    return "```\n" + "\n".join(lines) + "\n```\n"


def _percent(rate: dict[str, Any]) -> str:
    if rate["value"] is None:
        return "not measured"
    return f"{100 * rate['value']:.1f}% ({100 * rate['low']:.1f}-{100 * rate['high']:.1f}, n = {rate['n']})"


def _share(value: float | None) -> str:
    return "not measured" if value is None else f"{100 * value:.0f}%"


def asker_card(figures: Mapping[str, Any]) -> str:
    """Return the part of the model card that tells of Ask-E sessions."""
    rows = "\n".join(f"| {k.replace('_', ' ')} | {_percent(v)} |" for k, v in figures["playing"].items())
    totals, cells = [], []
    for probes in (4, 3, 0):
        part = figures[f"probes_{probes}"]
        counts = ", ".join(f"{n} {label.replace('_', ' ')}" for label, n in part["labels"].items() if n)
        totals.append(
            f"| {probes} | {_percent(part['calibrated'])} | {_share(part['expected'])} | {_share(part['chance'])} "
            f"| {_percent(part['final_valid'])} | {counts} |"
        )
    for pair in figures["probes_4"]["pairs"]:
        shown = [figures[f"probes_{p}"]["pairs"][pair] for p in (4, 3, 0)]
        cells.append(f"| {pair} | " + " | ".join(
            f"{_share(c['calibrated']['value'])} ({_share(c['chance'])})" for c in shown) + " |")  # fmt: skip
    return (
        f"\n## In sessions of Ask-E\n\nWith {', '.join(figures['pool'])} as solvers, {figures['cross_check']} three "
        f"times as cross-check, {figures['sessions_a_pair']} sessions a pair; measured by "
        "`python -m selfevolve.testbed.measure_asker`. Right and wrong are against the asker's own draft.\n\n"
        f"| turns | measured |\n|---|---|\n{rows}\n\n"
        "| probes | calibrated | expected from fresh solutions | chance line | final question valid | sessions |\n"
        f"|---|---|---|---|---|---|\n{chr(10).join(totals)}\n\n"
        "| pair | calibrated, 4 probes (chance line) | 3 probes | none |\n|---|---|---|---|\n" + "\n".join(cells) + "\n"
    )


def main() -> None:
    """Measure the asker in the folder named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--solvers", type=Path, default=SHIPPED, help="folder of the backbones that solve")
    parser.add_argument("--sessions", type=int, default=SESSIONS, help="sessions a pair and number of probes")
    parser.add_argument("--only-sessions", action="store_true", help="print the figures of sessions, write nothing")
    args = parser.parse_args()
    figures, example = asker_abilities(args.folder, args.solvers, args.sessions)
    part = asker_card(figures)
    print(part + "\n" + transcript(example), flush=True)
    if not args.only_sessions:
        every = {**abilities(args.folder), "sessions": figures}
        about = json.loads((args.folder / "profile.json").read_text())["about"]
        text = card(args.folder.name, about[0].upper() + about[1:], every) + part
        (args.folder / "abilities.json").write_text(json.dumps(every, indent=2) + "\n")
        (args.folder / "README.md").write_text(text)
        (args.folder / "transcript.md").write_text(transcript(example))


if __name__ == "__main__":
    main()
