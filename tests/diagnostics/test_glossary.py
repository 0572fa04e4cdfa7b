"""The glossary, the metrics and the docs name the same keys."""

from pathlib import Path

import pytest

from selfevolve.diagnostics import GLOSSARY, Evaluation, markdown_table, round_metrics
from selfevolve.diagnostics.glossary import entry

DOCS = Path(__file__).parents[2] / "docs"
START, END = "<!-- glossary: made by selfevolve.diagnostics.markdown_table -->", "<!-- end of glossary -->"
PROMISED = {
    "round",
    "valid_rate",
    "valid_rate_kept",
    "top5_share",
    "top5_share_kept",
    "pseudo_label_accuracy",
    "balanced_accuracy",
    "invalid_recall",
    "solver_accuracy",
    "questions",
    "parsed",
    "kept",
    "undecided_rate",
    "reward_mean",
    "seconds",
}


ASK_E_ROW = {"reward": None, "novelty": None, "ask_e": {"label": "too_easy", "same_weights": False}}


def test_glossary_holds_each_key_of_the_metrics_once() -> None:
    names = [e.name for e in GLOSSARY]
    assert len(names) == len(set(names))
    plain = set(round_metrics([], Evaluation(), round=1, seconds_by_stage={}))
    assert {e.name for e in GLOSSARY if not e.ask_e} == plain
    by_ask_e = round_metrics([], Evaluation(), round=1, seconds_by_stage={}, questioner_rows=[ASK_E_ROW])
    assert {e.name for e in GLOSSARY if e.ask_e} == set(by_ask_e) - plain


def test_promised_keys_are_there() -> None:
    assert {e.name for e in GLOSSARY} >= PROMISED


def test_docs_hold_the_glossary() -> None:
    text = (DOCS / "diagnostics.md").read_text(encoding="utf-8")
    table = text.split(START)[1].split(END)[0].strip()
    assert table == markdown_table(), "put markdown_table() between the two marks of docs/diagnostics.md"


def test_units_of_rates() -> None:
    found = round_metrics([], Evaluation(), round=1, seconds_by_stage={}, questioner_rows=[ASK_E_ROW])
    for e in GLOSSARY:
        is_rate = isinstance(found[e.name], dict) and "low" in found[e.name]
        assert (e.unit == "rate") == is_rate, e.name


def test_entry_by_name() -> None:
    assert entry("kept").unit == "count"
    with pytest.raises(KeyError, match="keep"):
        entry("keep")
