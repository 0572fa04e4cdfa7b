"""The shipped backbones: plain folders, small enough, with the abilities that their cards state."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from selfevolve.backbones import SHIPPED, resolve_backbone
from selfevolve.errors import UserError
from selfevolve.prompts import TESTBED
from selfevolve.questions import parse_question
from selfevolve.sampling import Sampling
from selfevolve.testbed import oracle
from selfevolve.testbed.profiles import PROFILES
from selfevolve.testbed.tasks import sample
from selfevolve.testbed.vocabulary import EOS, REPLY, UNK, build_tokenizer

NAMES = sorted(PROFILES)


def abilities(name: str) -> dict:
    return json.loads((SHIPPED / name / "abilities.json").read_text())


def test_all_ship_with_weights_card_profile_and_log_in_12_megabytes() -> None:
    assert sorted(p.name for p in SHIPPED.iterdir()) == NAMES
    for name in NAMES:
        files = {p.name for p in (SHIPPED / name).iterdir()}
        assert {"model.safetensors", "README.md", "profile.json", "training_log.jsonl", "tokenizer.json"} <= files
    assert sum(p.stat().st_size for p in SHIPPED.rglob("*") if p.is_file()) < 12_000_000


def test_the_base_has_the_abilities_that_the_testbed_needs() -> None:
    base = abilities("base")
    assert 0.45 <= base["solving"]["sampled"]["value"] <= 0.70
    assert base["solving"]["greedy"]["value"] > base["solving"]["sampled"]["value"]
    assert 0.69 <= base["asking"]["valid"]["value"] <= 0.90
    assert base["asking"]["no_question"]["value"] <= 0.03
    assert 0.10 <= base["asking"]["flags_invalid"]["value"] <= 0.30
    assert base["asking"]["flags_valid"]["value"] < 0.08
    assert 0.85 <= base["judging"]["sampled"]["value"] <= 0.95
    assert base["asking"]["majority_right_kept"]["value"] >= 0.70
    assert base["asking"]["mean_share_invalid"] < base["asking"]["mean_share_valid"]


def test_the_ladder_rises_and_the_specialists_cross() -> None:
    ladder = [abilities(n)["solving"]["sampled"]["value"] for n in ("rung-1", "rung-2", "base", "rung-4")]
    assert ladder == sorted(ladder) and ladder[-1] - ladder[0] > 0.4
    numbers, stories = (abilities(n)["solving"]["by_field"] for n in ("numbers", "stories"))
    for field in ("arithmetic", "algebra", "number theory", "sequences"):
        assert numbers[field]["value"] > stories[field]["value"] + 0.2, field
    for field in ("word problems", "rates", "geometry", "counting"):
        assert stories[field]["value"] > numbers[field]["value"] + 0.2, field


def test_on_the_contrasting_base_valid_questions_scatter_more() -> None:
    asking = abilities("contrast")["asking"]
    assert asking["mean_share_valid"] < asking["mean_share_invalid"]


def test_the_base_loads_as_a_plain_folder_and_asks() -> None:
    from selfevolve.sampling.transformers_sampler import TransformersSampler

    sampler = TransformersSampler(resolve_backbone("testbed:base"), name="base")
    replies = sampler.sample([TESTBED.ask()], Sampling(n=200, max_tokens=64, seed=11))[0]
    questions = [q for q, _, _ in (parse_question(r.text, r.finish_reason) for r in replies) if q]
    assert len(questions) >= 190  # 99% on the card
    assert 100 <= sum(oracle(q).valid for q in questions) <= 180  # 70% on the card
    again = sampler.sample([TESTBED.ask()], Sampling(n=200, max_tokens=64, seed=11))[0]
    assert [r.text for r in again] == [r.text for r in replies]


def test_every_training_text_survives_the_tokenizer() -> None:
    tokenizer = build_tokenizer()
    rng = Random(3)
    for name in NAMES:
        for _ in range(150):
            _, prompt, reply = sample(rng, PROFILES[name], (1, 1, 1, 1, 1))
            ids = tokenizer(prompt + REPLY + reply + EOS)["input_ids"]
            assert tokenizer.convert_tokens_to_ids(UNK) not in ids
            written = (prompt + REPLY + reply + EOS).replace("{ INVALID", "{INVALID")  # a mark takes its blank
            assert tokenizer.decode(ids) == written


def test_the_shipped_tokenizer_is_the_one_of_the_code() -> None:
    from transformers import AutoTokenizer

    shipped = AutoTokenizer.from_pretrained(SHIPPED / "base")
    assert shipped.get_vocab() == build_tokenizer().get_vocab()
    turn = [{"role": "user", "content": "<solve> what is 1 + 2 - 3?"}]
    assert shipped.apply_chat_template(turn, tokenize=False, add_generation_prompt=True).endswith("3?<reply>")


def test_an_unknown_backbone_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="base, contrast"):
        resolve_backbone("testbed:bsae")
    assert resolve_backbone("Qwen/Qwen3-4B-Base") == "Qwen/Qwen3-4B-Base"
    assert resolve_backbone(str(tmp_path)) == str(tmp_path)


def test_a_profile_is_tuned_from_the_shipped_trunk(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    from selfevolve.testbed.pretrain import SHIPPED_TRUNK, Schedule, save, train

    model = AutoModelForCausalLM.from_pretrained(SHIPPED_TRUNK).float()
    last = train(model, PROFILES["base"], Schedule(steps=2, batch=8), tmp_path / "log.jsonl")
    save(model, tmp_path / "mine")
    assert last["step"] == 2 and last["loss"] < 2  # an untrained model starts near log(470) = 6
    assert json.loads((tmp_path / "log.jsonl").read_text())["profile"] == "base"
    AutoModelForCausalLM.from_pretrained(tmp_path / "mine")
