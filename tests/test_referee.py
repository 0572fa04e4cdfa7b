"""Referees: the oracle is exact, a model's word is marked as such."""

from __future__ import annotations

from selfevolve.prompts import STANDARD
from selfevolve.referee import ModelReferee, OracleReferee
from selfevolve.sampling import FinishReason, Prompt, Reply, Sampling, ScriptedSampler


def test_the_oracle_referee_is_exact() -> None:
    found = OracleReferee().truths(["what is 12 + 7 - 5?", None, "what is 3 + 4 - 9?", "gibberish"])
    assert [f and f["valid"] for f in found] == [True, None, False, False]
    assert found[0] == {
        "source": "oracle",
        "pattern": "add_subtract",
        "valid": True,
        "error_type": None,
        "answer": "14",
    }
    assert found[3] is not None and found[3]["error_type"] == "malformed"


def script(prompt: Prompt, index: int) -> str | Reply:
    text = prompt[-1].content
    if "group_id" in text:  # the grouping prompt: sums are one pattern, the rest opens a group of its own
        new = text.rpartition("New question")[2]
        kind = "sum" if "+" in new else "other"
        inventory = text.partition("Existing groups")[2].partition("New question")[0]
        for line in inventory.splitlines():
            if f'"{kind}"' in line:
                return '{"group_id": "' + line.split('"id": "')[1].split('"')[0] + '", "pattern": "", "reason": "same"}'
        return '{"group_id": "NEW", "pattern": "' + kind + '", "reason": "new"}'
    if "runs on" in text:
        return Reply("so", FinishReason.LENGTH)
    return "<think>hm</think>\\boxed{INVALID}" if "bad" in text else "<think>hm</think>\\boxed{3}"


def test_a_model_referee_gives_opinions_and_leaves_undecided_open() -> None:
    referee = ModelReferee(ScriptedSampler(script, "judge"), STANDARD, Sampling(max_tokens=50), orderings=3)
    found = referee.truths(["1 + 1?", None, "2 + 5?", "a bad one?", "runs on?"])
    assert found[1] is None
    rows = [f for f in found if f is not None]
    assert [r["valid"] for r in rows] == [True, True, False, None]
    assert {r["source"] for r in rows} == {"model judge"}
    assert rows[0]["pattern"] == rows[1]["pattern"] != rows[2]["pattern"]
    assert rows[2]["pattern"] == rows[3]["pattern"]
    assert all(r["answer"] is None for r in rows)
    assert referee.top5_shares == [1.0, 1.0, 1.0]  # two groups in every ordering
