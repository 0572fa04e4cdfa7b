"""What an analysis says, as records. None stands for what was not run or could not be computed, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from aske.statistics import ChanceLine, Comparison, Direction, Estimate, Rate


def plain(value: Any) -> Any:
    """Return a record as plain values for JSON."""
    if isinstance(value, (Rate, Estimate, ChanceLine, Comparison, Direction)):
        return value.to_json()
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


@dataclass(frozen=True)
class Cell:
    """One asker on one pair."""

    asker: str
    pair: tuple[str, str]
    labels: Mapping[str, int]  # all six
    rate: Rate  # calibrated, with Wilson's interval
    chance: Estimate | None  # two copies on the same questions; without interval: a cell is too small for one
    stable: Rate | None  # stably calibrated among the counted sessions


@dataclass(frozen=True)
class Shuffled:
    """The asker's questions on the solvers of another pair; expected rates from fresh solutions, same questions."""

    other: Estimate  # P(exactly one right) with the other pair
    own: Estimate  # the same with the pair that the question was written for
    aimed: Estimate  # own - other: what aiming at the pair earns


@dataclass(frozen=True)
class Stability:
    """How much of a label is the luck of one draw."""

    solutions: int  # fresh solutions a solver and question, the most met
    flips: Estimate  # P(a redrawn label differs from the observed one), over graded sessions
    flips_calibrated: Estimate  # the same over sessions that were labelled calibrated
    redraws: Estimate  # P(two redrawn labels differ); far from `flips`: the resampling is not what was played
    stable: Rate  # stably calibrated, of all counted sessions
    stable_calibrated: Rate  # stably calibrated, of the sessions labelled calibrated
    gap: Estimate  # mean p(stronger solver) - p(weaker solver)


@dataclass(frozen=True)
class CrossCheck:
    """The cross-check's answers against the oracle's."""

    true: Rate  # sessions with a cross-check answer: share that the oracle gives too
    true_calibrated: Rate  # the same among the sessions labelled calibrated
    valid: Rate  # final questions that have one answer


@dataclass(frozen=True)
class Regrade:
    """The sessions under another cross-check."""

    name: str
    agreement: Rate  # same label, of the sessions that count under both
    rate: Rate  # calibrated under the other cross-check
    shift: Estimate  # calibrated (regraded) - calibrated (as played), of the sessions that count under both


@dataclass(frozen=True)
class SeatCost:
    """What one seat was asked, controls not included."""

    seat: str
    calls: int  # requests
    replies: int
    prompt_tokens: int
    new_tokens: int


@dataclass(frozen=True)
class Cost:
    """What the sessions took."""

    seats: tuple[SeatCost, ...]
    sessions: int
    calibrated: int

    @property
    def calls(self) -> int:
        """Requests of all seats."""
        return sum(seat.calls for seat in self.seats)

    @property
    def new_tokens(self) -> int:
        """New tokens of all seats."""
        return sum(seat.new_tokens for seat in self.seats)

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens of all seats."""
        return sum(seat.prompt_tokens for seat in self.seats)


@dataclass(frozen=True)
class AskerAnalysis:
    """One asker."""

    asker: str
    labels: Mapping[str, int]  # all six labels
    reasons: Mapping[str, int]  # of the ungradable sessions
    malformed: int  # malformed turns in all sessions
    turns: int  # turns in all sessions
    rate: Rate  # calibrated / counted, Wilson's interval
    clustered: Estimate  # the same with the cluster-bootstrap interval
    clusters: str  # what that interval resamples: "pairs and slots", "pairs", "slots" or "sessions"
    chance: ChanceLine | None  # None: not resampled
    excess: Estimate | None  # calibrated - two copies, over the sessions that were resampled
    same_model: Rate | None  # calibrated in sessions whose two solvers are one model
    same_model_clustered: Estimate | None
    same_model_cells: Mapping[str, Rate]  # by solver
    shuffled: Shuffled | None
    no_probing: Rate | None  # calibrated over unprobed questions x pairs
    no_probing_clustered: Estimate | None  # by pair and question
    sensitivity: tuple[tuple[str, Rate], ...]  # (what was counted how, calibrated)
    stability: Stability | None
    direction: Direction | None
    cross_check: CrossCheck | None
    regrades: tuple[Regrade, ...]
    difficulty: Mapping[str, Estimate]  # by label: mean share of the pool's solvers that solve the question
    cost: Cost
    cells: tuple[Cell, ...]

    @property
    def best_interval(self) -> Estimate:
        """The interval to read: the clustered one, Wilson's where the data allow no clustered one."""
        if self.clustered.low is not None:
            return self.clustered
        return Estimate(self.rate.value, self.rate.low, self.rate.high, self.rate.n, self.rate.asked)


@dataclass(frozen=True)
class Compared:
    """Two askers compared, and what it would take to tell their difference."""

    comparison: Comparison
    needed: int | None  # sessions an asker for 80% power at the observed difference; None where the difference is 0
    to_ask: int | None  # the same with the observed share of dropped cells added


@dataclass(frozen=True)
class Missing:
    """A control that was not run."""

    name: str
    what: str  # what the report cannot say without it
    command: str  # how to run it


@dataclass(frozen=True)
class Analysis:
    """A whole bench."""

    folder: str  # the folder's name
    config: Mapping[str, Any]
    planned: int | None  # sessions that the config asks for; None where it does not say
    played: int
    solvers: tuple[str, ...]  # strongest first where that is known, else in order of appearance
    ability: Mapping[str, float]  # share right by solver, from `ability_source`
    ability_source: str  # "" where nothing tells which solver is stronger
    askers: tuple[AskerAnalysis, ...]
    comparisons: tuple[Compared, ...]
    missing: tuple[Missing, ...]
    warnings: tuple[str, ...]  # what the reader must know before trusting the numbers
    notes: tuple[str, ...]  # what could not be read

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``summary.json``; rates carry value, k, n, low, high, asked, ungradable_share."""
        found: dict[str, Any] = plain(self)
        return found
