import json
from pathlib import Path

import numpy as np
import pytest

from novelty import bleu_distances, deduplicate, first_indices, is_duplicate, normal_text

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "public-bug-reports.jsonl"

SAME = [
    ("Find $x$ if $2x=8$.", r"Find \(x\)  if \( 2x = 8 \) ."),
    (r"Compute $\dfrac{1}{2}+\tfrac{1}{3}$.", r"Compute \[\frac{1}{2} + \frac{1}{3}\]."),
    ("Find $$x + 1$$ now.", "Find x+1 now."),
    (r"Let $f\left(x\right) = x^{2}$.", "Let $f(x)=x^2$."),
    (r"$a \leq b$, $a \ne c$", r"$a\le b$, $a\neq c$"),
    ("Is $3\N{MINUS SIGN}2 \N{LESS-THAN OR EQUAL TO} 1$?", r"Is $3 - 2 \le 1$?"),
    (r"What is $3 \times 4$?", "What is 3 \N{MULTIPLICATION SIGN} 4?"),
    (r"A rope is $5\text{ cm}$ long.", r"A rope is $5\,\mathrm{cm}$ long."),
    (r"A rope is $5\text{ cm}$ long.", "A rope is 5 cm long."),
    ("It costs \\$5.", "It costs $5."),
    ("Find\nx.", "Find\u00a0x."),
    (r"$1, 2, \ldots, n$", r"$1,2,\dots,n$"),
    (r"$\sqrt{x}$", r"$\sqrt x$"),
    ("cafe\u0301", "caf\u00e9"),
    (r"20\% of 50", "20% of 50"),
    (r"an angle of $30^\circ$.", "an angle of 30\N{DEGREE SIGN}."),
    (r"$30^{\circ}C$", "30\N{DEGREE SIGN}C"),
    (r"$\alpha + \Omega$", "\N{GREEK SMALL LETTER ALPHA}+\N{GREEK CAPITAL LETTER OMEGA}"),
    (r"as $x \to \infty$", "as x \N{RIGHTWARDS ARROW} \N{INFINITY}"),
    ("5 \N{EN DASH} 3", "5-3"),
]
DIFFERENT = [
    ("Find $x$ if $2x=8$.", "Find $x$ if $2x=18$."),
    ("Find x if x = 1.", "Find x if x = 2."),
    ("Find X.", "Find x."),
    ("Find x.", "Find y."),
    ("The digits 1 2 and 3", "The digits 12 and 3"),
    ("Step 1. 5 apples", "Step 1.5 apples"),
    ("Add 1, 234.", "Add 1,234."),
    (r"$\frac{1}{23}$", r"$\frac{12}{3}$"),
    ("$x^{23}$", "$x^23$"),
    ("$x^{2}3$", "$x^{23}$"),
    ("$x^2$", "$x2$"),
    ("x\u00b2", "x2"),
    ("the set {1, 2}", "the set (1, 2)"),
    (r"$\{1\}$", "$1$"),
    (r"$3 \cdot 4$", "$3.4$"),
    ("$3-4$", "$3+4$"),
    ("now here", "nowhere"),
    (r"$\sin x$", r"$\cos x$"),
    ("Find x", "Find x!"),
    (r"$\alpha$", r"$\beta$"),
    (r"$f^\circ g$", "$f g$"),
    (r"$30^\circ$", "$30$"),
    ("", "x"),
]


@pytest.mark.parametrize(("first", "second"), SAME)
def test_typesetting_makes_no_difference(first: str, second: str) -> None:
    assert normal_text(first) == normal_text(second)
    assert is_duplicate(first, second)


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_content_does(first: str, second: str) -> None:
    assert not is_duplicate(first, second)


@pytest.mark.parametrize("text", [pair[0] for pair in SAME + DIFFERENT])
def test_digits_and_letters_all_stay(text: str) -> None:
    assert [c for c in normal_text(text) if c.isdigit()] == [c for c in text if c.isdigit()]
    assert normal_text(text) == normal_text(f"  {text}\n")


@pytest.mark.parametrize(
    "text", ["{" * 5000, "}" * 5000, "\\", "\\\\\\", "\\text{" * 3000, "$" * 5001, "\0 a", "{}{{}}"]
)
def test_broken_latex_does_not_raise(text: str) -> None:
    assert isinstance(normal_text(text), str)
    assert is_duplicate(text, text)


def test_the_first_of_each_stays_as_it_was_written() -> None:
    questions = ["Find $x$.", "Add 1.", r"Find \( x \).", "Add 2.", "Add 1.", "Find  x."]
    assert first_indices(questions) == [0, 1, 3]
    assert deduplicate(questions) == ["Find $x$.", "Add 1.", "Add 2."]
    assert deduplicate([]) == []


def _case(name: str) -> dict:
    if not CASES.exists():
        pytest.skip(f"{CASES.name} is not beside the repository")
    rows = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    return next(row for row in rows if row["id"] == name)


def test_shared_case_of_duplicates() -> None:
    case = _case("S42")
    assert [is_duplicate(*pair) for pair in case["input"]["pairs"]] == case["expected"]


def test_shared_case_of_short_texts() -> None:
    found = [1 - bleu_distances(pair)[0, 1] for pair in _case("S41")["input"]["pairs"]]
    assert found[:3] == [1.0, 0.0, 0.0]
    assert np.isfinite(found[3]) and 0 <= found[3] < 1
