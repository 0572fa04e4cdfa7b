"""Every shipped recipe is built, overridden, dumped and reloaded; and says what its name promises."""

from pathlib import Path

import pytest
import yaml

from selfevolve.config import (
    accelerate_config_path,
    config_hash,
    differences,
    dump,
    list_recipes,
    load_recipe,
    recipe_from_text,
    recipes_folder,
)
from selfevolve.estimate import estimate

NAMES = [name for name, _ in list_recipes()]
FILES = sorted(p for p in recipes_folder().rglob("*.yaml") if p.parent.name not in ("accelerate", "aske"))
FAMILIES = ("testbed", "qwen3-4b-base", "octothinker-3b")
VARIANTS = ["r_quest", "r_zero_code", "r_zero_paper", "no_validity", "no_novelty", "neither", "frozen_judge", "k16"]


def test_the_recipes_are_there():
    variants = (*VARIANTS, "exhaustive", "ask_e", "ask_e_gates")
    expected = {f"{family}/{name}" for family in FAMILIES for name in variants}
    expected |= {f"testbed/ask_e_{name}" for name in ("equal_tokens", "pool", "sessions")}
    assert set(NAMES) == expected | {"qwen2.5-0.5b-cpu", "qwen3-4b-base/r_quest_one_gpu"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_each_file_loads_and_survives_the_round_trip(path: Path):
    recipe = load_recipe(path)
    again = recipe_from_text(dump(recipe), "dumped")
    assert again == recipe
    assert config_hash(again) == config_hash(recipe)
    changed = load_recipe(path, ["seed=7", "solver.learning_rate=2e-6", "questioner.steps=3"])
    assert (changed.seed, changed.solver.learning_rate, changed.questioner.steps) == (7, 2e-6, 3)
    assert recipe_from_text(dump(changed), "dumped") == changed
    assert config_hash(changed) != config_hash(recipe)


@pytest.mark.parametrize(("name", "description"), list_recipes())
def test_each_recipe_has_a_line_of_its_own(name, description):
    assert description and "\n" not in description and len(description) < 110
    recipe = load_recipe(name)
    assert (recipe.name, recipe.description) == (name, description)


def changed(family: str, name: str) -> set[str]:
    lines = differences(load_recipe(f"{family}/r_quest"), load_recipe(f"{family}/{name}"))
    return {line.replace("0.0", "0") for line in lines}


R_ZERO = {
    "initialisation.enabled: true -> false",
    "assessment.validity.judge: current -> off",
    "novelty.gate: k_sampled -> none",
    "reward.repetition: none -> bleu",
    "solver.replay: 0.1 -> 0",
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("r_zero_code", R_ZERO),
        ("r_zero_paper", R_ZERO | {"reward.uncertainty: min -> peaked"}),
        ("no_validity", {"assessment.validity.judge: current -> off"}),
        ("no_novelty", {"novelty.gate: k_sampled -> none", "reward.repetition: none -> bleu"}),
        (
            "neither",
            {
                "assessment.validity.judge: current -> off",
                "novelty.gate: k_sampled -> none",
                "reward.repetition: none -> bleu",
            },
        ),
        ("frozen_judge", {"assessment.validity.judge: current -> frozen"}),
        ("k16", {"novelty.k: 8 -> 16"}),
        ("exhaustive", {"novelty.gate: k_sampled -> exhaustive"}),
    ],
)
def test_a_variant_changes_what_its_name_says_and_nothing_else(family, name, expected):
    assert changed(family, name) == expected


def of_ask_e(family: str, name: str, base: str) -> set[str]:
    lines = differences(load_recipe(f"{family}/{base}"), load_recipe(f"{family}/{name}"))
    return {line for line in lines if "embedder" not in line}


@pytest.mark.parametrize("family", FAMILIES)
def test_ask_e_replaces_the_reward_and_nothing_else(family):
    assert of_ask_e(family, "ask_e_gates", "r_quest") == {"reward.rule: solver -> ask_e"}
    assert of_ask_e(family, "ask_e", "r_zero_code") == {
        "reward.rule: solver -> ask_e",
        "reward.repetition: bleu -> none",
    }


def test_variants_of_ask_e_on_the_testbed():
    equal = of_ask_e("testbed", "ask_e_equal_tokens", "ask_e")
    assert equal == {"questioner.prompts: 32 -> 92", "questioner.global_batch: 16 -> 46"}
    assert load_recipe("testbed/ask_e_sessions").ask_e.probes == 3
    assert load_recipe("testbed/ask_e_pool").ask_e.cross_check == "base"


def test_equal_budgets_of_sampled_tokens():
    """The comment in the recipe: 397,312 and 400,384 tokens a round in the questioner's stage, within 1%."""
    ours, theirs = (estimate(load_recipe(f"testbed/{name}")) for name in ("ask_e_equal_tokens", "r_zero_code"))
    tokens = [{cost.stage: cost.tokens for cost in found.a_round} for found in (ours, theirs)]
    assert (tokens[1]["questioner"], tokens[0]["questioner"]) == (397_312, 400_384)
    assert {k: v for k, v in tokens[0].items() if k != "questioner"} == {
        k: v for k, v in tokens[1].items() if k != "questioner"
    }
    assert ours.tokens / theirs.tokens == pytest.approx(1.0033, abs=1e-4)
    updates = [r.steps * r.prompts // r.global_batch for r in
               (load_recipe(f"testbed/{name}").questioner for name in ("ask_e_equal_tokens", "r_zero_code"))]  # fmt: skip
    assert updates == [8, 8]


@pytest.mark.parametrize(
    ("probes", "checks", "replies"),
    # 512 questions: one turn each, two solvers and one check; with 3 probes 4 turns and 8 solver replies
    [(0, 1, 512 * (1 + 2 + 1)), (0, 3, 512 * (1 + 2 + 3)), (3, 1, 512 * (4 + 8 + 1))],
)
def test_the_estimate_counts_ask_es_replies(probes, checks, replies):
    recipe = load_recipe("testbed/ask_e", [f"ask_e.probes={probes}", f"ask_e.checks={checks}"])
    [cost] = [cost for cost in estimate(recipe).a_round if cost.stage == "questioner"]
    turns = 1 + probes
    assert (cost.replies, cost.tokens) == (replies, 512 * turns * 56 + (replies - 512 * turns) * 72)


@pytest.mark.parametrize("name", VARIANTS)
def test_octothinker_differs_in_its_backbone_alone(name):
    lines = differences(load_recipe(f"qwen3-4b-base/{name}"), load_recipe(f"octothinker-3b/{name}"))
    assert list(lines) == ["backbone: Qwen/Qwen3-4B-Base -> OctoThinker/OctoThinker-3B-Hybrid-Base"]


def test_paper_values():
    """The table of one round in the papers: R-Quest, appendices A.3 and C.2."""
    recipe = load_recipe("qwen3-4b-base/r_quest")
    rows = [
        (stage.steps, stage.prompts, stage.responses, stage.global_batch)
        for stage in (recipe.initialisation, recipe.questioner, recipe.solver)
    ]
    assert rows == [(15, 512, 8, 128), (5, 512, 4, 4), (15, 512, 5, 128)]
    for stage in (recipe.initialisation, recipe.questioner, recipe.solver):
        assert (stage.temperature, stage.top_p, stage.learning_rate, stage.kl) == (1.0, 0.99, 1e-6, 1e-2)
    assessment = recipe.assessment
    assert (recipe.candidates, assessment.validity.votes, assessment.solutions) == (10_000, 9, 10)
    assert (assessment.temperature, assessment.top_p, assessment.top_k) == (1.0, 1.0, 40)
    assert (assessment.share_low, assessment.share_high, recipe.novelty.k) == (0.3, 0.8, 8)
    assert (recipe.solver.replay, recipe.solver.pseudo_label_weight, recipe.solver.format_weight) == (0.1, 0.9, 0.1)
    limits = recipe.generation
    assert (limits.max_prompt_tokens, limits.max_new_tokens.question, limits.max_new_tokens.solution) == (
        2048,
        4096,
        4096,
    )
    assert (recipe.backbone, recipe.rounds) == ("Qwen/Qwen3-4B-Base", 10)


@pytest.mark.parametrize("name", ["cpu_2", "single_gpu", "ddp"])
def test_accelerate_configs(name):
    data = yaml.safe_load((recipes_folder() / "accelerate" / f"{name}.yaml").read_text())
    assert data["num_machines"] == 1 and data["num_processes"] == {"cpu_2": 2, "single_gpu": 1}.get(name, 4)
    # with use_cpu accelerate starts one process only, whatever the number asked for
    assert data["use_cpu"] is False
    # accelerate compares with the text "no"; a bare no would be read as false
    assert data["mixed_precision"] in ("no", "bf16")
    # text "NO" stays text
    assert data["distributed_type"] in ("NO", "MULTI_GPU", "FSDP")


def test_accelerate_config_by_name():
    given = ["launcher=accelerate", "processes=2", "accelerate_config=cpu_2.yaml"]
    path = accelerate_config_path(load_recipe("testbed/r_quest", given))
    assert path == recipes_folder() / "accelerate" / "cpu_2.yaml"
    assert accelerate_config_path(load_recipe("testbed/r_quest")) is None


def test_accelerate_reads_the_shipped_configs():
    """accelerate's own reader takes each file; its import is slow, so all files in one test."""
    config_args = pytest.importorskip("accelerate.commands.config.config_args")
    for path in sorted((recipes_folder() / "accelerate").glob("*.yaml")):
        config = config_args.load_config_from_file(str(path))
        assert config.num_processes == yaml.safe_load(path.read_text())["num_processes"], path
