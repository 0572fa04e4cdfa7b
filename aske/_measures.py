"""The numbers of one asker, each from the records of a bench; see `aske._results` for what they mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from aske import statistics as st
from aske._folder import Bench, Draws, Unprobed, resample_of
from aske._results import Cell, Cost, CrossCheck, Regrade, SeatCost, Shuffled, Stability
from aske.game import Seat
from aske.labels import Label, Mark, Reason
from aske.prompts import load_pack
from aske.records import SessionRecord, replay
from aske.statistics import Estimate, Outcome, Rate, Resample

GRADED = (Label.CALIBRATED, Label.TOO_EASY, Label.TOO_HARD)
_NOTHING = Resample(0, 0, 0, 0)


@dataclass(frozen=True)
class Drawing:
    """How intervals are drawn."""

    draws: int = st.clusters.DRAWS
    seed: int = 0


def outcome(label: str) -> Outcome:
    """Return whether a label counts as calibrated; None where the session is ungradable."""
    return None if label == Label.UNGRADABLE else label == Label.CALIBRATED


def label_counts(labels: Sequence[str]) -> dict[str, int]:
    """Return how often each of the six labels stands."""
    found = Counter(labels)
    return {label.value: found[label.value] for label in Label}


class Clusters:
    """Which factors an interval over sessions resamples: those that have at least two clusters among them."""

    def __init__(self, pairs: Sequence[object], slots: Sequence[object], drawing: Drawing, slot: str = "slots") -> None:
        """Keep the pair and the slot of each value."""
        self.pairs = [str(pair) for pair in pairs]
        self.slots = [str(one) for one in slots]
        self.drawing = drawing
        self.slot = slot

    def _factors(self, values: Sequence[float | None]) -> tuple[bool, bool]:
        kept = [i for i, value in enumerate(values) if value is not None]
        return len({self.pairs[i] for i in kept}) > 1, len({self.slots[i] for i in kept}) > 1

    def name(self, values: Sequence[float | None]) -> str:
        """Say what is resampled."""
        pairs, slots = self._factors(values)
        found = " and ".join(["pairs"] * pairs + [self.slot] * slots)
        return found or "sessions"

    def mean(self, values: Sequence[float | None]) -> Estimate:
        """Return the mean with its interval."""
        pairs, slots = self._factors(values)
        return st.clustered_mean(
            values, self.pairs if pairs else None, self.slots if slots else None,
            draws=self.drawing.draws, seed=self.drawing.seed,
        )  # fmt: skip

    def pick(self, places: Sequence[int]) -> Clusters:
        """Return the clusters of some of the values."""
        return Clusters([self.pairs[i] for i in places], [self.slots[i] for i in places], self.drawing, self.slot)

    @property
    def keys(self) -> tuple[list[str] | None, list[str] | None]:
        """The arguments ``pairs`` and ``slots`` of the statistics; a factor with one cluster is none."""
        return (
            self.pairs if len(set(self.pairs)) > 1 else None,
            self.slots if len(set(self.slots)) > 1 else None,
        )


def clusters_of(sessions: Sequence[SessionRecord], drawing: Drawing) -> Clusters:
    """Return the clusters of sessions: their pair and their slot."""
    return Clusters(["+".join(sorted(s.pair)) for s in sessions], [s.slot for s in sessions], drawing)


def reached(sessions: Sequence[SessionRecord], draws: Mapping[str, tuple[Draws, ...]]) -> frozenset[str]:
    """Return the ids of the sessions that a control has come to; it goes through them in the order of their file.

    A lost session has no draws that tell. All lost ones beside a part of the graded ones would pull every mean towards
    0, so those behind the last draw wait until the control gets there.
    """
    graded = [place for place, session in enumerate(sessions) if session.label in GRADED]
    drawn = [place for place in graded if sessions[place].id in draws]
    end = len(sessions) if len(drawn) == len(graded) else max(drawn, default=-1) + 1
    return frozenset(session.id for session in sessions[:end])


def fresh(sessions: Sequence[SessionRecord], bench: Bench) -> list[Resample]:
    """Return the fresh solutions of each counted session: LOST where no question was graded, empty where none tell."""
    draws = bench.resamples or {}
    met = reached(bench.sessions, draws)
    return [
        (resample_of(draws.get(s.id), s.pair) if s.label in GRADED else st.LOST if s.id in met else None) or _NOTHING
        for s in sessions
        if s.label.counted
    ]


def told(counted: Sequence[SessionRecord], values: Sequence[float | None]) -> bool:
    """Return whether a control says anything: lost sessions alone, where others were graded, say nothing."""
    graded = [value for session, value in zip(counted, values, strict=True) if session.label in GRADED]
    return not graded or any(value is not None for value in graded)


def untold(sessions: Sequence[SessionRecord], bench: Bench) -> tuple[int, int]:
    """Return how many graded questions lack two decided fresh solutions of a solver, and how many were graded."""
    graded = [s for s in sessions if s.label in GRADED]
    return sum(st.two_copies(question) is None for question in fresh(graded, bench)), len(graded)


def chance(
    sessions: Sequence[SessionRecord], bench: Bench, drawing: Drawing
) -> tuple[st.ChanceLine | None, Estimate | None]:
    """Return the chance line over the counted sessions, and the calibrated rate less it on the same sessions."""
    if bench.resamples is None:
        return None, None
    counted = [s for s in sessions if s.label.counted]
    questions = fresh(counted, bench)
    copies = [st.two_copies(q) for q in questions]
    clusters = clusters_of(counted, drawing)
    pairs, slots = clusters.keys
    line = st.chance_line(questions, pairs, slots, draws=drawing.draws, seed=drawing.seed)
    if line.copies.value is None or not told(counted, copies):
        return None, None
    over = [None if c is None else float(s.label is Label.CALIBRATED) - c for s, c in zip(counted, copies, strict=True)]
    return line, clusters.mean(over)


def shuffled(sessions: Sequence[SessionRecord], bench: Bench, drawing: Drawing) -> Shuffled | None:
    """Return the shuffled-pair control on the sessions that have both kinds of fresh solutions."""
    if bench.shuffled is None:
        return None
    counted = [s for s in sessions if s.label.counted]
    other, own = [], []
    met, met_own = reached(bench.sessions, bench.shuffled), reached(bench.sessions, bench.resamples or {})
    for session in counted:
        if session.label not in GRADED:
            other.append(0.0 if session.id in met else None)
            own.append(0.0 if bench.resamples is not None and session.id in met_own else None)
            continue
        given = resample_of(bench.shuffled.get(session.id))
        mine = resample_of((bench.resamples or {}).get(session.id), session.pair)
        other.append(st.exactly_one(given) if given else None)
        own.append(st.exactly_one(mine) if mine else None)
    if not any(value is not None for value in other) or not told(counted, other):
        return None
    clusters = clusters_of(counted, drawing)
    aimed = [None if a is None or b is None else a - b for a, b in zip(own, other, strict=True)]
    return Shuffled(clusters.mean(other), clusters.mean(own), clusters.mean(aimed))


def no_probing(
    questions: Sequence[Unprobed], pairs: Sequence[tuple[str, str]], drawing: Drawing
) -> tuple[Rate | None, Estimate | None]:
    """Return the calibrated rate over unprobed questions x pairs, clustered by pair and question."""
    outcomes: list[Outcome] = []
    of_pair, of_question = [], []
    for question in questions:
        for a, b in pairs:
            if a not in question.marks or b not in question.marks:
                if question.counted and question.marks:
                    continue  # this pair was not tried
                one: Outcome = False if question.counted else None
            else:
                first, second = question.marks[a], question.marks[b]
                one = None if first is None or second is None or not question.counted else first != second
            outcomes.append(one)
            of_pair.append(f"{a}+{b}")
            of_question.append(question.index)
    if not outcomes:
        return None, None
    values = [None if one is None else float(one) for one in outcomes]
    return st.rate(outcomes), Clusters(of_pair, of_question, drawing, "questions").mean(values)


def sensitivity(sessions: Sequence[SessionRecord]) -> tuple[tuple[str, Rate], ...]:
    """Return the calibrated rate under other ways of counting, from the records alone.

    Only sessions whose label can change are played again: those lost to a cut-off reply, and those whose several
    cross-checks did not yield a label.
    """
    pack = load_pack("standard")  # a label does not hang on the texts of the prompts

    def again(session: SessionRecord, how: str) -> Outcome:
        if how == "one":
            several = any(c.seat is Seat.CROSS_CHECK and len(c.replies) > 1 for c in session.calls)
            changes = several and session.label in (Label.BAD_CROSS_CHECK, Label.UNGRADABLE)
            return outcome(replay(session, pack, checks=1).label if changes else session.label)
        if session.grade.reason is not Reason.TRUNCATED:
            return outcome(session.label)
        return outcome(replay(session, pack, truncated="wrong" if how == "wrong" else "right").label)

    rows = [("truncated left out (as played)", st.rate(outcome(s.label) for s in sessions))]
    rows.append(("truncated counted as wrong", st.rate(again(s, "wrong") for s in sessions)))
    rows.append(("truncated counted as right", st.rate(again(s, "right") for s in sessions)))
    if any(s.rules.checks > 1 for s in sessions):
        rows.append(("one cross-check in place of all", st.rate(again(s, "one") for s in sessions)))
    return tuple(rows)


def stability(
    sessions: Sequence[SessionRecord], bench: Bench, ability: Mapping[str, float], drawing: Drawing
) -> Stability | None:
    """Return how stable the labels are; None where nothing was resampled."""
    graded = [s for s in sessions if s.label in GRADED and bench.resamples and s.id in bench.resamples]
    if bench.resamples is None or not graded:
        return None
    drawn = fresh(graded, bench)
    labels = [s.label.value for s in graded]
    clusters = clusters_of(graded, drawing)
    calibrated = [i for i, s in enumerate(graded) if s.label is Label.CALIBRATED]
    chosen = clusters.pick(calibrated)

    def flips(places: Sequence[int], over: Clusters) -> Estimate:
        return over.mean([st.flip_from(labels[i], drawn[i]) for i in places])

    gaps = []
    for session, question in zip(graded, drawn, strict=True):
        a, b = (ability.get(name, 0.0) for name in session.pair)
        p_a, p_b = question.p_a, question.p_b
        gaps.append(None if p_a is None or p_b is None or a == b else (p_a - p_b) * (1 if a > b else -1))
    return Stability(
        solutions=max(max(q.counted_a, q.counted_b) for q in drawn),
        flips=flips(range(len(graded)), clusters),
        flips_calibrated=flips(calibrated, chosen),
        redraws=clusters.mean([st.redraws_differ(q) for q in drawn]),
        stable=st.stable_rate(fresh(sessions, bench)),
        stable_calibrated=st.stable_rate([drawn[i] for i in calibrated]),
        gap=clusters.mean(gaps),
    )


def direction(sessions: Sequence[SessionRecord], ability: Mapping[str, float]) -> st.Direction | None:
    """Return who was right in the graded sessions; None where no solver is known to be the stronger."""
    if not ability:
        return None
    marks: dict[Mark, Outcome] = {Mark.RIGHT: True, Mark.WRONG: False, Mark.UNDECIDED: None}
    solved = [
        st.Solved(s.pair[0], s.pair[1], marks[s.grade.marks[0]], marks[s.grade.marks[1]])
        for s in sessions
        if len(s.grade.marks) == 2 and all(name in ability for name in s.pair)
    ]
    return st.direction(solved, st.by_ability(ability)) if solved else None


def cross_check(sessions: Sequence[SessionRecord], bench: Bench) -> CrossCheck | None:
    """Return how often the cross-check's answer is true."""
    if bench.truths is None:
        return None
    known = [(s, bench.truths[s.id]) for s in sessions if s.id in bench.truths]
    if not known:
        return None
    answered = [(s, truth) for s, truth in known if s.grade.answer is not None]
    return CrossCheck(
        true=st.rate(truth.cross_check_true for _, truth in answered),
        true_calibrated=st.rate(truth.cross_check_true for s, truth in answered if s.label is Label.CALIBRATED),
        valid=st.rate(truth.valid for s, truth in known if s.question is not None),
    )


def regrades(sessions: Sequence[SessionRecord], bench: Bench, drawing: Drawing) -> tuple[Regrade, ...]:
    """Return each regrade that covers any of the sessions."""
    found = []
    for name, labels in bench.regrades.items():
        here = [(s, labels[s.id].label) for s in sessions if s.id in labels]
        if not here:
            continue
        both = [(outcome(s.label), outcome(label), s.label == label) for s, label in here]
        moved = [None if a is None or b is None else float(b) - float(a) for a, b, _ in both]
        found.append(
            Regrade(
                name,
                st.rate(None if a is None or b is None else same for a, b, same in both),
                st.rate(b for _, b, _ in both),
                clusters_of([s for s, _ in here], drawing).mean(moved),
            )
        )
    return tuple(found)


def difficulty(sessions: Sequence[SessionRecord], bench: Bench, drawing: Drawing) -> dict[str, Estimate]:
    """Return by label the mean share of right solutions of the final questions, over the solvers that tried them."""
    found: dict[str, Estimate] = {}
    for label in GRADED if bench.difficulty is not None else ():
        chosen = [s for s in sessions if s.label is label and s.id in (bench.difficulty or {})]
        shares = []
        for session in chosen:
            tried = (bench.difficulty or {})[session.id]
            counted = [d.right / (d.right + d.wrong) for d in tried if d.right + d.wrong]
            shares.append(sum(counted) / len(counted) if counted else None)
        if chosen:
            found[label.value] = clusters_of(chosen, drawing).mean(shares)
    return found


def cost(sessions: Sequence[SessionRecord]) -> Cost:
    """Return calls and tokens by seat; both boundary solvers are one seat. A cached reply counts as if it were paid."""
    names = {Seat.BOUNDARY_A: "boundary", Seat.BOUNDARY_B: "boundary"}
    seats = {name: [0, 0, 0, 0] for name in ("asker", "boundary", "cross_check")}
    for session in sessions:
        for call in session.calls:
            seat = seats[names.get(call.seat, call.seat.value)]
            seat[0] += 1
            seat[1] += len(call.replies)
            seat[2] += sum(r.prompt_tokens for r in call.replies)
            seat[3] += sum(r.completion_tokens for r in call.replies)
    calibrated = sum(s.label is Label.CALIBRATED for s in sessions)
    return Cost(tuple(SeatCost(name, *numbers) for name, numbers in seats.items()), len(sessions), calibrated)


def cells(asker: str, sessions: Sequence[SessionRecord], bench: Bench) -> tuple[Cell, ...]:
    """Return one cell a pair, in order of first appearance."""
    drawn = dict(zip([s.id for s in sessions if s.label.counted], fresh(sessions, bench), strict=True))
    by_pair: dict[tuple[str, str], list[SessionRecord]] = {}
    for session in sessions:
        by_pair.setdefault(session.pair, []).append(session)
    found = []
    for pair, rows in by_pair.items():
        copies, stable = None, None
        if bench.resamples is not None:
            counted = [s for s in rows if s.label.counted]
            values = [st.two_copies(drawn[s.id]) for s in counted]
            line = st.clustered_mean(values, draws=1)
            copies = Estimate(line.value, None, None, line.n, len(rows)) if line.n and told(counted, values) else None
            stable = st.stable_rate([drawn[s.id] for s in counted])
        labels = [s.label.value for s in rows]
        found.append(Cell(asker, pair, label_counts(labels), st.rate(map(outcome, labels)), copies, stable))
    return tuple(found)


def all_pairs(solvers: Sequence[str]) -> list[tuple[str, str]]:
    """Return every unordered pair."""
    return list(combinations(solvers, 2))
