"""Stop loudly when there is nothing to learn; warn when a round's figures fall below stated bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from selfevolve.errors import CollapseError

NO_SPREAD = 1e-6  # rewards of a group that differ by less are equal but for rounding; the advantages say so too


class NothingToLearn(CollapseError, RuntimeError):
    """Training steps would change nothing; the message holds the table of reasons, the remedy what to do."""


class Finding(StrEnum):
    """What the monitor says of one figure."""

    OK = "ok"  # at or above its bound
    BELOW = "below"  # below its bound
    UNKNOWN = "unknown"  # not measured in this round


@dataclass(frozen=True)
class Bounds:
    """Least acceptable figures of a round; None switches a check off."""

    valid_rate: float | None = None  # share of valid questions in the pool, [0, 1]
    distinct_patterns: int | None = None  # patterns in the pool
    kept: int | None = None  # questions kept for the solver
    answered_rate: float | None = None  # solutions with an answer, of those asked, [0, 1]
    reward_std: float | None = None  # deviation of the questioner's rewards


@dataclass(frozen=True)
class Check:
    """One figure against its bound."""

    metric: str
    value: float | None  # None: not measured
    bound: float
    finding: Finding


@dataclass(frozen=True)
class MonitorReport:
    """The checks of one round."""

    round: int
    checks: tuple[Check, ...]
    stop: bool  # the monitor was told to stop, and a figure is below its bound

    @property
    def below(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.finding is Finding.BELOW)

    def table(self) -> str:
        """Return the checks as aligned text, a line each."""
        rows = [("figure", "value", "bound", "finding")]
        for check in self.checks:
            value = "not measured" if check.value is None else f"{check.value:.4g}"
            rows.append((check.metric, value, f"{check.bound:.4g}", check.finding.value))
        return align(rows)


class CollapseMonitor:
    """Compare a round's metrics with bounds.

    The monitor only reports; the loop ends the run where ``report.stop`` is set.
    """

    def __init__(self, bounds: Bounds, stop: bool = False) -> None:
        """Keep the bounds; with ``stop`` a figure below its bound asks for the end of the run."""
        self.bounds = bounds
        self.stop = stop

    def check(self, metrics: Mapping[str, Any]) -> MonitorReport:
        """Return what the bounds say of one object of ``metrics.jsonl``; a figure not measured is never below."""
        checks = []
        for field in fields(self.bounds):
            bound = getattr(self.bounds, field.name)
            if bound is None:
                continue
            found = metrics.get(field.name)
            value = found["value"] if isinstance(found, Mapping) else found
            checks.append(Check(field.name, value, bound, _finding(value, bound)))
        below = any(check.finding is Finding.BELOW for check in checks)
        return MonitorReport(metrics["round"], tuple(checks), self.stop and below)


def _finding(value: float | None, bound: float) -> Finding:
    if value is None:
        return Finding.UNKNOWN
    return Finding.BELOW if value < bound else Finding.OK


def check_training_set(
    examples: Sequence[object], *, decisions: Mapping[str, int] | None = None, minimum: int = 1, stop: bool = True
) -> list[str]:
    """Check that a training set holds something before steps are spent on it.

    Args:
        examples: What the steps would train on.
        decisions: Why questions were kept or not (decision -> questions), for the table of reasons.
        minimum: Least number of examples.
        stop: Raise where the check fails; otherwise return the message as a warning.

    Returns:
        Warnings; empty where all is well.

    Raises:
        NothingToLearn: Fewer than ``minimum`` examples, with ``stop``.
    """
    if len(examples) >= minimum:
        return []
    message = f"{len(examples)} training examples, and at least {minimum} are needed; no step was made"
    if decisions:
        message += "\n" + align([("decision", "questions"), *((name, str(n)) for name, n in decisions.items())])
    remedy = (
        "Look at the largest row: too_easy and too_hard ask for a wider window (assessment.share_low, share_high), "
        "invalid for a look at the validity judge (assessment.validity), undecided and no_answer for longer replies "
        "(generation.max_new_tokens.solution), malformed for longer or better questions; where few are kept, raise "
        "candidates."
    )
    return _raise_or_warn(message, remedy, stop)


def check_reward_spread(
    groups: Sequence[Sequence[float | None]],
    *,
    cut_off: int | None = 0,
    max_tokens: int | None = None,
    near_all: float = 0.95,
    stop: bool = True,
) -> list[str]:
    """Check that the rewards of a few steps can teach something: in a group they differ by more than rounding.

    Args:
        groups: Rewards of each prompt's replies, axes ``[group][reply]``; None where a reply is masked.
        cut_off: Replies of these groups that were cut off at the token limit; None: not counted.
        max_tokens: That limit, for the message.
        near_all: Share of cut-off replies that counts as nearly all, in (0, 1].
        stop: Raise where nothing can be learned; otherwise return the message as a warning.

    Returns:
        Warnings: nearly all replies cut off while rewards still differ; with ``stop`` off also the failures.

    Raises:
        NothingToLearn: No rewards, or no group with a spread, with ``stop``. Where nearly all replies were cut off,
            the message names the token limit, since the rewards then measure the limit and not the model.
    """
    replies = sum(map(len, groups))
    if cut_off is not None and not 0 <= cut_off <= replies:
        raise ValueError(f"cut_off is {cut_off}; it must lie in [0, {replies}], the number of replies")
    if replies == 0:
        return _raise_or_warn("no rewards are given: nothing to learn", "Check that prompts were sampled.", stop)
    scored = [[reward for reward in group if reward is not None] for group in groups]
    limit = "the token limit" if max_tokens is None else f"the limit of {max_tokens} tokens"
    limited = cut_off is not None and cut_off >= near_all * replies
    cut = f"{cut_off} of {replies} replies were cut off at {limit}, so rewards measure the limit rather than the model"
    if any(group and max(group) - min(group) > NO_SPREAD for group in scored):
        return [f"{cut}; raise it"] if limited else []
    values = [reward for group in scored for reward in group]
    rows = [
        ("replies", str(replies)),
        ("cut off", "not counted" if cut_off is None else str(cut_off)),
        ("masked", str(replies - len(values))),
        ("rewards", f"{min(values):.4g} to {max(values):.4g}" if values else "none"),
    ]
    message = f"no spread of rewards in any of {len(groups)} groups, so no step can change the model\n{align(rows)}"
    remedy = (
        "Where all rewards are the lowest, read the replies: they miss the format (prompts, max_new_tokens). Else "
        "raise the temperature or responses, or look whether the questions are all too easy or too hard."
    )
    if limited:
        message, remedy = f"{message}\n{cut}", "Raise the limit (generation.max_new_tokens), so that replies can end."
    return _raise_or_warn(message, remedy, stop)


def _raise_or_warn(message: str, remedy: str, stop: bool) -> list[str]:
    if stop:
        raise NothingToLearn(message, remedy)
    return [f"{message}\n{remedy}"]


def align(rows: Sequence[tuple[str, ...]]) -> str:
    """Return rows as text with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)
