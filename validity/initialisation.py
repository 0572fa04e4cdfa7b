"""The initialisation set: questions of several rounds, deduplicated, sampled evenly, split and labelled."""

from __future__ import annotations

import json
import logging
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from validity.verdict import INVALID, is_rejection

logger = logging.getLogger(__name__)

_TYPESETTING = (
    (re.compile("\N{MINUS SIGN}"), "-"),
    (re.compile(r"\\[()\[\]]|\$\$"), "$"),
    (re.compile(r"\\[dt]frac\b"), r"\\frac"),
    (re.compile(r"\\(?:left|right|displaystyle)\b|\\[,;!:]"), " "),
    (re.compile(r"\s+"), " "),
    (re.compile(r" ?([^\w\s]) ?"), r"\1"),
)
# what data sets write where a question has no answer to check
_MISSING = {"proof", "notfound", "not found", "none", "null", "nan", "n/a", "na", "unknown", "no answer", "tbd", "todo"}


class Split(StrEnum):
    """Which part of the set an example belongs to."""

    TRAIN = "train"
    HELD_OUT = "held_out"  # never trained on: calibration is measured here


@dataclass(frozen=True)
class Label:
    """What a labeller says of one question."""

    answer: str  # the reference answer, or INVALID
    error_type: str | None = None  # what is wrong with an invalid question, e.g. "contradiction"; None for a valid one


Labeller = Callable[[str], Label | None]  # None: the labeller cannot tell, the question is dropped


@dataclass(frozen=True)
class InitialisationExample:
    """One labelled question of the initialisation set."""

    question: str
    answer: str  # the reference answer, or INVALID
    error_type: str | None  # None for a valid question
    round: int  # the round whose questions it comes from
    split: Split

    @property
    def valid(self) -> bool:
        """True when the question is labelled valid."""
        return not is_rejection(self.answer)


@dataclass(frozen=True)
class InitialisationSet:
    """The examples, and what was left out on the way."""

    examples: tuple[InitialisationExample, ...]  # by round, train before held-out
    duplicates: int  # questions dropped since an equal text came earlier, in the same round or an earlier one
    unlabelled: int  # sampled questions dropped since the labeller could not tell

    def split(self, split: Split) -> tuple[InitialisationExample, ...]:
        """Return the examples of one part."""
        return tuple(example for example in self.examples if example.split is split)


def normalise(question: str) -> str:
    """Return the text by which duplicates are told: differences of typesetting are gone, digits and letters stay.

    Unicode NFC (the compatibility form would turn "three squared" into 32); one form for minus signs and for the
    delimiters, fractions and brackets of LaTeX; blanks only between two words. Case is kept, since letters of
    mathematics differ by it.
    """
    text = unicodedata.normalize("NFC", question)
    for pattern, replacement in _TYPESETTING:
        text = pattern.sub(replacement, text)
    return text.strip()


def deduplicate(rounds: Mapping[int, Sequence[str]]) -> dict[int, list[str]]:
    """Return each round's questions without repeats, within and across rounds; the first one stays (lowest round)."""
    seen: set[str] = set()
    distinct: dict[int, list[str]] = {}
    for number in sorted(rounds):
        distinct[number] = []
        for question in rounds[number]:
            key = normalise(question)
            if key and key not in seen:
                seen.add(key)
                distinct[number].append(question)
    return distinct


def build_initialisation_set(
    rounds: Mapping[int, Sequence[str]],
    label: Labeller,
    *,
    train: int = 400,
    held_out: int = 60,
    seed: int = 0,
) -> InitialisationSet:
    """Return the initialisation set (R-Quest, appendix A.1: 460 a round of five rounds, 400 + 60).

    Questions are deduplicated, ``train + held_out`` of each round are drawn without replacement and split, and the
    drawn ones are labelled; those that the labeller cannot tell are dropped, so a round may end with fewer. A round's
    draw depends on ``seed``, its number and its distinct questions only.

    Args:
        rounds: Round number -> that round's questions.
        label: Gives a question's label, or None.
        train: Questions a round for training.
        held_out: Questions a round for calibration.
        seed: Seed of the draws.

    Raises:
        ValueError: A round has too few distinct questions, a count is negative, or a label is blank.
    """
    if train < 0 or held_out < 0 or train + held_out == 0:
        raise ValueError(f"train is {train} and held_out {held_out}; both must be 0 or more, and one of them above 0")
    if not rounds:
        raise ValueError("no rounds are given; give the questions of at least one")
    distinct = deduplicate(rounds)
    _require_enough(distinct, train + held_out)
    examples: list[InitialisationExample] = []
    unlabelled = 0
    for number, questions in distinct.items():
        drawn = random.Random(f"initialisation/{seed}/{number}").sample(questions, train + held_out)
        for i, question in enumerate(drawn):
            found = label(question)
            if found is None:
                unlabelled += 1
                continue
            split = Split.TRAIN if i < train else Split.HELD_OUT
            examples.append(_example(question, found, number, split))
    duplicates = sum(map(len, rounds.values())) - sum(map(len, distinct.values()))
    return InitialisationSet(tuple(examples), duplicates, unlabelled)


def _require_enough(distinct: Mapping[int, Sequence[str]], needed: int) -> None:
    short = {number: len(questions) for number, questions in distinct.items() if len(questions) < needed}
    if short:
        listed = ", ".join(f"round {number} has {count}" for number, count in short.items())
        raise ValueError(
            f"{listed} distinct questions after deduplication, and {needed} a round are asked for; ask for at most "
            f"{min(short.values())} a round, or give more questions"
        )


def _example(question: str, label: Label, number: int, split: Split) -> InitialisationExample:
    if not label.answer.strip():
        raise ValueError(f"the label of {question[:80]!r} is blank; give an answer, {INVALID}, or None for unlabelled")
    if is_rejection(label.answer):
        return InitialisationExample(question, INVALID, label.error_type, number, split)
    return InitialisationExample(question, label.answer, None, number, split)


def write_examples(path: Path, examples: Iterable[InitialisationExample]) -> None:
    """Write one JSON object a line; the file appears whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    lines = (json.dumps(asdict(example), ensure_ascii=False) for example in examples)
    partial.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    partial.replace(path)


def read_examples(path: Path) -> list[InitialisationExample]:
    """Return the examples of a file written by `write_examples`, or by hand with the same keys.

    Rows without an answer that can be checked are left out and counted in a warning: a blank question, an answer that
    is null, blank or a word for a missing one (``proof``, ``not found``), and an error type beside an answer other than
    INVALID. An answer that is a number is taken as its text.

    Raises:
        ValueError: A line is not an example; the message names the line.
    """
    names = {field.name for field in fields(InitialisationExample)}
    examples: list[InitialisationExample] = []
    left_out: Counter[str] = Counter()
    # not `splitlines`, which also parts lines at marks that stand inside a question
    for i, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict) or set(row) != names:
                raise ValueError(f"expected an object with the keys {sorted(names)}")
            reason = _no_example(row)
            if reason is not None:
                left_out[reason] += 1
                continue
            examples.append(
                InitialisationExample(**{**row, "answer": _text(row["answer"]), "split": Split(row["split"])})
            )
        except ValueError as error:
            raise ValueError(f"{path}, line {i}: {error}; write the file with write_examples") from error
    if left_out:
        reasons = ", ".join(f"{number} with {reason}" for reason, number in left_out.most_common())
        logger.warning(
            "%s: %d of %d rows left out: %s", path, left_out.total(), left_out.total() + len(examples), reasons
        )
    return examples


def _no_example(row: Mapping[str, Any]) -> str | None:
    """Return what a row lacks to be learned from; None where it lacks nothing.

    Raises:
        ValueError: A value is of a type that it cannot have.
    """
    question, answer, error_type = row["question"], row["answer"], row["error_type"]
    for name, value in (("question", question), ("error_type", error_type)):
        if not isinstance(value, str | None):
            raise ValueError(f"{name} is {value!r}; expected text or null")
    if isinstance(answer, bool) or not isinstance(answer, str | int | float | None):
        raise ValueError(f"answer is {answer!r}; expected text, a number or null")
    if question is None or not question.strip():
        return "a blank question"
    if answer is None or not _text(answer).strip():
        return "no answer"
    word = " ".join(_text(answer).casefold().replace("_", " ").split()).strip(" .")
    if word in _MISSING:
        return f"the answer {word!r}"
    if error_type and not is_rejection(_text(answer)):
        return f"an error type beside an answer other than {INVALID}"
    return None


def _text(answer: str | float) -> str:
    return answer if isinstance(answer, str) else json.dumps(answer)
