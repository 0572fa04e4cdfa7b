"""Rewards of the questioner and of the solver: pure functions of what was measured, with their terms by name.

A questioner's reward is the sum of its terms, where novelty is a factor of the uncertainty term::

    total = format + validity + uncertainty * novelty + repetition (+ floor, where the rule has one)

* ``format``: the rule's ``malformed`` value (-1) where no question could be read, else 0. All other terms are then 0.
* ``validity``: ``g_valid`` where that is negative, else 0. All other terms are then 0.
* ``uncertainty``: ``1 - 2|s - 1/2|`` (peaked) or ``min(s, 1 - s)`` (min), with ``s`` the majority's share.
* ``novelty``: 0 where the novelty gate rejects, else 1.
* ``repetition``: minus cluster size / batch size, in rules that have it, else 0.
* ``floor``: what is added to lift the rest to the rule's floor.

A question whose validity or whose majority is undecided has all terms 0, so its reward is 0; likewise one that the
novelty gate rejects, under a rule without repetition and floor: it need not be solved.

Ask-E's rule has a calibration term in place of uncertainty, and a diversity term (docs/design/ask-e-in-the-loop.md)::

    total = format + validity + min(0, calibration) + max(0, calibration) * novelty + diversity + repetition

* ``calibration``: +1 where exactly one boundary solver agrees with the cross-check, else what the recipe says.
* ``novelty``: as above, on what the calibration term earns only: being a repetition never lifts a loss to 0.
* ``diversity``: ``max(0, calibration) * novelty * alpha * (1 - mean cosine)``, so a rejected repetition earns none.
* ``format``: in sessions of several turns -0.05 a malformed turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from selfevolve.answers import Equivalence, compare, extract
from validity import ValidityDecision


class Uncertainty(StrEnum):
    """Shape of the uncertainty term over the majority's share ``s``."""

    PEAKED = "peaked"  # 1 - 2|s - 1/2|, at most 1 (R-Zero, its paper)
    MIN = "min"  # min(s, 1 - s), at most 1/2 (R-Zero, its released code; R-Quest, section 3.3)


class RewardName(StrEnum):
    """The rules that have a name."""

    R_ZERO_PAPER = "r_zero_paper"  # peaked, minus repetition
    R_ZERO_CODE = "r_zero_code"  # min, minus repetition
    R_QUEST = "r_quest"  # min, behind the validity gate and the novelty gate
    ASK_E = "ask_e"  # exactly one of two solvers right, behind both gates


class Flag(StrEnum):
    """What a reward had to pass over for want of evidence."""

    VALIDITY_UNDECIDED = "validity_undecided"  # too few votes: total 0
    SOLUTIONS_UNDECIDED = "solutions_undecided"  # too few answers: total 0
    NOVELTY_UNDECIDED = "novelty_undecided"  # no readable match: counts as novel


@dataclass(frozen=True)
class Measured:
    """What the assessment knows of one candidate; the rewards read nothing else."""

    parsed: bool  # the reply holds a question in the required format
    g_valid: float | None = None  # 1/2 - u, in [-1/2, 1/2]; None: not asked or undecided
    validity_decision: ValidityDecision | None = None  # None: not asked
    share: float | None = None  # s, the majority's share of the solutions, in [0, 1]; None: not solved or no answer
    solutions_decided: bool = False  # enough solutions were answered
    novel: bool | None = None  # None: not asked or undecided
    cluster_size: int | None = None  # questions in this one's lexical cluster, itself included; None: not clustered
    batch: int | None = None  # questions that were clustered together
    calibration: float | None = None  # Ask-E's term for the label; None: not asked or ungradable
    diversity: float = 0.0  # Ask-E's term for a new question, before the novelty gate
    malformed_turns: float = 0.0  # Ask-E's format term of a session, 0 or below


@dataclass(frozen=True)
class Reward:
    """A reward and its terms; `total` follows from `terms` by the formula of this module."""

    total: float
    terms: dict[str, float]
    flags: tuple[Flag, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return the ``reward`` object of an assessed question's record; ``flags`` only where there are some."""
        record: dict[str, object] = {"total": self.total, "terms": dict(self.terms)}
        return {**record, "flags": [flag.value for flag in self.flags]} if self.flags else record


def uncertainty(share: float, shape: Uncertainty) -> float:
    """Return the uncertainty term for a majority's share in [0, 1]."""
    if not 0 <= share <= 1:
        raise ValueError(f"share is {share}; it must lie in [0, 1]")
    match shape:
        case Uncertainty.PEAKED:
            return 1 - 2 * abs(share - 0.5)
        case Uncertainty.MIN:
            return min(share, 1 - share)


def total(terms: dict[str, float]) -> float:
    """Return the reward that a set of terms stands for."""
    if "calibration" in terms:
        earned = terms["calibration"]
        gated = min(0.0, earned) + max(0.0, earned) * terms["novelty"]
        return terms["format"] + terms["validity"] + gated + terms["diversity"] + terms["repetition"]
    rest = terms["format"] + terms["validity"] + terms["uncertainty"] * terms["novelty"] + terms["repetition"]
    return rest + terms.get("floor", 0.0)


@dataclass(frozen=True)
class RewardRule:
    """A questioner's reward: a shape, an optional penalty, and gates that compose with either."""

    uncertainty: Uncertainty
    repetition: bool  # subtract cluster size / batch size
    validity_gate: bool  # g_valid below 0 is the reward, whatever the rest
    novelty_gate: bool  # a repeated question earns no uncertainty term
    malformed: float = -1.0  # the reward of a reply without a question
    floor: float | None = None  # least reward of a well-formed question that passes the validity gate; None: none

    def __call__(self, measured: Measured) -> Reward:
        """Return the reward of one candidate.

        Raises:
            ValueError: Something that the rule needs was not measured.
        """
        if not measured.parsed:
            return self._reward({"format": self.malformed, "novelty": 0.0})
        if self.validity_gate:
            if measured.validity_decision is None:
                raise ValueError("validity_decision is None, but the rule has a validity gate: ask for votes first")
            if measured.validity_decision is ValidityDecision.UNDECIDED or measured.g_valid is None:
                return self._reward({"novelty": 0.0}, (Flag.VALIDITY_UNDECIDED,))
            if measured.g_valid < 0:
                return self._reward({"validity": measured.g_valid, "novelty": 0.0})
        if not measured.solutions_decided or measured.share is None:
            repeated = self.novelty_gate and measured.novel is False and self.repeated_earns_nothing
            return self._reward({"novelty": 0.0}, () if repeated else (Flag.SOLUTIONS_UNDECIDED,))
        return self._question(measured, measured.share)

    @property
    def repeated_earns_nothing(self) -> bool:
        """True where the reward of a question that the novelty gate rejects is 0 whatever its solutions are."""
        return not self.repetition and self.floor is None

    def _question(self, measured: Measured, share: float) -> Reward:
        terms = {"uncertainty": uncertainty(share, self.uncertainty)}
        flags: tuple[Flag, ...] = ()
        if self.novelty_gate:
            terms["novelty"] = 0.0 if measured.novel is False else 1.0
            flags = (Flag.NOVELTY_UNDECIDED,) if measured.novel is None else ()
        if self.repetition:
            terms["repetition"] = -_cluster_share(measured)
        if self.floor is not None:
            terms["floor"] = max(0.0, self.floor - self._reward(terms).total)
        return self._reward(terms, flags)

    @staticmethod
    def _reward(given: dict[str, float], flags: tuple[Flag, ...] = ()) -> Reward:
        terms = {"format": 0.0, "validity": 0.0, "uncertainty": 0.0, "repetition": 0.0, "novelty": 1.0, **given}
        return Reward(total(terms), terms, flags)


def _cluster_share(measured: Measured) -> float:
    size, batch = measured.cluster_size, measured.batch
    if size is None or batch is None or not 1 <= size <= batch:
        raise ValueError(
            f"cluster_size is {size} and batch {batch}, but the rule has a repetition term: it needs "
            "1 <= cluster_size <= batch; cluster the whole batch first"
        )
    return size / batch


@dataclass(frozen=True)
class AskERule:
    """Ask-E's reward (Ask-E, training) behind the gates of R-Quest."""

    repetition: bool = False  # subtract cluster size / batch size
    validity_gate: bool = True  # g_valid below 0 is the reward, whatever the rest
    novelty_gate: bool = True  # a repeated question earns neither calibration nor diversity
    sessions: bool = False  # several turns: a malformed one costs `Measured.malformed_turns`, not `malformed`
    malformed: float = -1.0  # the reward of a reply without a question, outside of sessions

    def __call__(self, measured: Measured) -> Reward | None:
        """Return the reward of one candidate; None where it is ungradable: masked, out of its group's baseline.

        Raises:
            ValueError: Something that the rule needs was not measured.
        """
        if not measured.parsed and not self.sessions:
            return self._reward({"format": self.malformed, "novelty": 0.0})
        if measured.parsed and self.validity_gate:
            if measured.validity_decision is None:
                raise ValueError("validity_decision is None, but the rule has a validity gate: ask for votes first")
            if measured.validity_decision is ValidityDecision.UNDECIDED or measured.g_valid is None:
                return self._reward({"novelty": 0.0}, (Flag.VALIDITY_UNDECIDED,))
            if measured.g_valid < 0:
                return self._reward({"validity": measured.g_valid, "novelty": 0.0})
        if measured.calibration is None:
            return None
        terms = {"format": measured.malformed_turns, "calibration": measured.calibration}
        if not measured.parsed:
            return self._reward({**terms, "novelty": 0.0})
        return self._question(measured, terms)

    def _question(self, measured: Measured, terms: dict[str, float]) -> Reward:
        rejected = self.novelty_gate and measured.novel is False
        terms["novelty"] = 0.0 if rejected else 1.0
        terms["diversity"] = 0.0 if rejected else measured.diversity
        if self.repetition:
            terms["repetition"] = -_cluster_share(measured)
        undecided = self.novelty_gate and measured.novel is None
        return self._reward(terms, (Flag.NOVELTY_UNDECIDED,) if undecided else ())

    @staticmethod
    def _reward(given: dict[str, float], flags: tuple[Flag, ...] = ()) -> Reward:
        names = ("format", "validity", "calibration", "diversity", "repetition")
        terms = {**dict.fromkeys(names, 0.0), "novelty": 1.0, **given}
        return Reward(total(terms), terms, flags)


r_zero_paper = RewardRule(Uncertainty.PEAKED, repetition=True, validity_gate=False, novelty_gate=False)
r_zero_code = RewardRule(Uncertainty.MIN, repetition=True, validity_gate=False, novelty_gate=False)
r_quest = RewardRule(Uncertainty.MIN, repetition=False, validity_gate=True, novelty_gate=True)
ask_e = AskERule()


def reward_rule(name: RewardName | str) -> RewardRule | AskERule:
    """Return the rule of a name; vary it with `dataclasses.replace` (e.g. ``novelty_gate=False``).

    Raises:
        ValueError: No rule has the name.
    """
    match name:
        case RewardName.R_ZERO_PAPER:
            return r_zero_paper
        case RewardName.R_ZERO_CODE:
            return r_zero_code
        case RewardName.R_QUEST:
            return r_quest
        case RewardName.ASK_E:
            return ask_e
    raise ValueError(f"no reward is named {name!r}; it must be one of {', '.join(RewardName)}")


def _thought_then_box(text: str) -> bool:
    """Return True when a reply opens with reasoning in ``<think>`` tags and a box stands after them."""
    body = text.lstrip()
    if not body.startswith("<think>"):
        return False
    thought, closed, rest = body.removeprefix("<think>").partition("</think>")
    return bool(thought.strip() and closed) and ("\\boxed" in rest or "\\fbox" in rest)


def solver_terms(
    text: str,
    finish_reason: str,
    pseudo_label: str,
    equal: Callable[[str, str], Equivalence] = compare,
    *,
    agreement: float = 0.9,
    form: float = 0.1,
) -> dict[str, float] | None:
    """Return the terms of a solver's reward: agreement 0 or 0.9, format 0 or 0.1; None where agreement is undecided.

    Args:
        text: The reply.
        finish_reason: Why it ended. A reply cut off at the token limit has no answer and earns 0, as in the papers;
            a reply that failed (``timeout``, ``error``) is undecided.
        pseudo_label: The majority answer of the question's assessment.
        equal: Compares the label with the given answer.
        agreement: What agreement earns.
        form: What the form earns.
    """
    if finish_reason in ("timeout", "error"):
        return None
    answer = extract(text, finish_reason)
    if answer is None:
        return {"agreement": 0.0, "format": 0.0}
    verdict = equal(pseudo_label, answer)
    if verdict is Equivalence.UNDECIDED:
        return None
    return {
        "agreement": agreement if verdict is Equivalence.SAME else 0.0,
        "format": form if _thought_then_box(text) else 0.0,
    }


def solver_reward(
    text: str,
    finish_reason: str,
    pseudo_label: str,
    equal: Callable[[str, str], Equivalence] = compare,
) -> float | None:
    """Return the solver's reward on a generated question (R-Quest, appendix C.2; R-Zero): the sum of `solver_terms`.

    0.9 for agreement with the pseudo-label, plus 0.1 for reasoning in ``<think>`` tags followed by a box. None where
    agreement is undecided: such a reply is masked.
    """
    terms = solver_terms(text, finish_reason, pseudo_label, equal)
    return None if terms is None else sum(terms.values())
