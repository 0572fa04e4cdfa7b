"""What a run costs: counts, time, memory and disk, worked by hand."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from selfevolve.config import list_recipes, load_recipe
from selfevolve.config.asker import load_asker_training
from selfevolve.errors import UserError
from selfevolve.estimate import (
    DEVICES,
    FILL,
    KNOWN,
    LEARN_COST,
    Shape,
    UnknownShape,
    asker_estimate,
    duration,
    estimate,
    find_device,
    gpu_table,
    shape_of,
    table,
)
from selfevolve.estimate.cost import SOLUTIONS_REWARDED, VOTES_POOL, VOTES_REWARDED
from selfevolve.estimate.gpu import gpu_time
from selfevolve.estimate.memory import activations, disk, frozen_models, memory_table, rows_that_fit, sharded
from selfevolve.estimate.throughput import (
    Profile,
    decode_seconds,
    learn_seconds,
    passes_of,
    prefill_seconds,
    profile,
    update_seconds,
)

SMALL = [
    *("rounds=3", "candidates=10", "novelty.k=3", "diagnostics.sample=0", "diagnostics.heldout=5"),
    *("diagnostics.solver_samples=2", "assessment.validity.votes=5", "assessment.solutions=6"),
    *("questioner.steps=2", "questioner.prompts=4", "questioner.responses=2", "questioner.global_batch=4"),
    *("solver.steps=3", "solver.prompts=2", "solver.responses=5", "solver.global_batch=2"),
    *("initialisation.steps=1", "initialisation.prompts=2", "initialisation.responses=4"),
    *("initialisation.global_batch=2", "generation.max_new_tokens={question: 50, solution: 40, judge: 4}"),
]
FULL = [*SMALL, "assessment.early_stop=false"]


# -- counts


def test_counts_by_hand():
    result = estimate(load_recipe("testbed/r_quest", FULL), 100)
    costs = {c.stage: c for c in (*result.once, *result.a_round)}
    # 1 step x 2 x 4 replies of 40 tokens, generated and learned
    assert (costs["initialisation"].replies, costs["initialisation"].tokens) == (8, 320)
    assert costs["initialisation"].seconds == pytest.approx(FILL * 320 * (1 + LEARN_COST) / 100)
    # 16 candidates of 50; each 5 votes and 6 solutions of 40, and 3 comparisons of 4
    assert costs["questioner"].replies == 16 + 16 * 11 + 48
    assert costs["questioner"].tokens == 16 * 50 + 16 * 11 * 40 + 48 * 4
    assert costs["questioner"].seconds == pytest.approx(FILL * (costs["questioner"].tokens + LEARN_COST * 800) / 100)
    assert (costs["candidates"].replies, costs["candidates"].tokens) == (10, 500)
    assert (costs["assessment"].replies, costs["assessment"].tokens) == (110, 4400)
    assert (costs["solver"].replies, costs["solver"].tokens) == (30, 1200)
    assert (costs["diagnostics"].replies, costs["diagnostics"].tokens) == (20, 800)
    per_round = 800 + 7040 + 192 + 500 + 4400 + 1200 + 800
    assert result.tokens == 320 + 3 * per_round
    assert result.expected == pytest.approx(FILL * result.tokens)
    learned = 320 + 3 * (800 + 1200)
    assert result.seconds == pytest.approx(FILL * (result.tokens + LEARN_COST * learned) / 100)


def test_early_stopping_lowers_what_is_expected_and_not_what_is_possible():
    full, early = (estimate(load_recipe("testbed/r_quest", given), 100, fill=0.5) for given in (FULL, SMALL))
    assert full.tokens == early.tokens
    costs = {c.stage: c.expected for c in early.a_round}
    votes, solved = 16 * 5 * 40 * VOTES_REWARDED, 16 * 6 * 40 * SOLUTIONS_REWARDED
    assert costs["questioner"] == pytest.approx(0.5 * (800 + votes + solved + 192))
    assert costs["assessment"] == pytest.approx(0.5 * (10 * 5 * 40 * VOTES_POOL + 10 * 6 * 40))
    assert costs["solver"] == 0.5 * 1200
    # docs/one-round.md: 40% of the tokens of both stages are saved
    assert pytest.approx(0.40, abs=0.005) == 1 - (291_088 + 91_930 + 217_844 + 323_610) / (
        451_274 + 423_273 + 346_929 + 323_610
    )
    assert pytest.approx(0.645, abs=1e-3) == VOTES_REWARDED and pytest.approx(0.217, abs=1e-3) == SOLUTIONS_REWARDED


@pytest.mark.parametrize(
    ("override", "stage", "replies"),
    [
        ("assessment.validity.judge=off", "assessment", 60),
        ("novelty.gate=none", "questioner", 16 + 176),
        ("novelty.gate=exhaustive", "questioner", 16 + 176 + 16 * 7),
    ],
)
def test_counts_follow_the_gates(override, stage, replies):
    result = estimate(load_recipe("testbed/r_quest", [*SMALL, override]))
    assert {c.stage: c.replies for c in result.a_round}[stage] == replies


def test_without_initialisation():
    assert estimate(load_recipe("testbed/r_zero_code")).once == ()


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(5.25, "5.2 s"), (119, "119.0 s"), (120, "2.0 min"), (7199, "120.0 min"), (7200, "2.0 h"), (172800, "2.0 d")],
)
def test_duration(seconds, shown):
    assert duration(seconds) == shown


# -- shapes


def test_known_shapes_have_the_sizes_of_their_model_cards():
    assert KNOWN["Qwen/Qwen3-4B-Base"].parameters == 36 * 100_925_440 + 151_936 * 2560 == 4_022_272_000
    sizes = {name.split("/")[1]: (round(s.parameters / 1e9, 2), round(s.body / 1e9, 2)) for name, s in KNOWN.items()}
    assert sizes == {
        "Qwen3-4B-Base": (4.02, 3.63),
        "OctoThinker-3B-Hybrid-Base": (3.21, 2.82),
        "Qwen2.5-Coder-0.5B-Instruct": (0.49, 0.36),
        "Qwen2.5-Coder-1.5B-Instruct": (1.54, 1.31),
    }
    assert KNOWN["Qwen/Qwen3-4B-Base"].cache_bytes(2) == 2 * 36 * 8 * 128 * 2 == 147_456


def test_a_local_shape_counts_the_weights_that_are_there():
    from safetensors import safe_open

    shape = shape_of("testbed:base")
    folder = Path(__file__).resolve().parents[1] / "selfevolve" / "testbed" / "backbones" / "base"
    with safe_open(folder / "model.safetensors", "numpy") as file:
        sizes = {name: math.prod(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    assert shape.parameters == sum(size for name, size in sizes.items() if "norm" not in name)
    assert sum(sizes.values()) < 1.01 * shape.parameters


def test_adapters_are_counted_as_peft_counts_them(tmp_path):
    peft = pytest.importorskip("peft")
    from tiny_model import tiny_model

    model = peft.get_peft_model(tiny_model(), peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert Shape(3, 96, 4, 2, 24, 288, 396, tied=False).lora(4) == trained


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (None, "the shape of '.*' is not known here"),
        ({"model_type": "mixtral"}, "is of type 'mixtral'; the formulas cover llama"),
        ({"model_type": "llama", "num_attention_heads": 4}, "has no 'num_hidden_layers'"),
    ],
)
def test_what_is_missing_is_told_and_nothing_is_guessed(tmp_path, config, told):
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config))
    recipe = load_recipe("qwen3-4b-base/r_quest", [f"backbone={tmp_path}"])
    with pytest.raises(UnknownShape, match=told):
        shape_of(recipe.backbone)
    shown = gpu_table(recipe, estimate(recipe))
    assert re.search(told, shown) and "GPU h" not in shown and shown.startswith("no figures for GPUs")


def test_a_referee_of_unknown_shape_gives_no_figures_either():
    recipe = load_recipe("qwen3-4b-base/r_quest", ["referee=model", "referee_model=org/judge"])
    assert "the shape of 'org/judge' is not known" in gpu_table(recipe, estimate(recipe))


# -- devices


@pytest.mark.parametrize(
    ("name", "title"), [("h100", "H100 SXM"), ("RTX 4090", "RTX 4090"), ("A100_80", "A100 SXM, 80")]
)
def test_devices_by_name(name, title):
    assert find_device(name).title.startswith(title)


@pytest.mark.parametrize(
    ("name", "nearest"), [("h10", "h100"), ("a100", "a100-80"), ("4090", "rtx4090"), ("l40", "l40s")]
)
def test_an_unknown_device_names_the_nearest(name, nearest):
    with pytest.raises(UserError, match=f"no device '{name}'") as caught:
        find_device(name)
    assert caught.value.remedy == f"did you mean {nearest}?"


# -- the throughput model

# 2 layers of 8 x (4 + 2 + 2 + 4) + 3 x 8 x 10 = 336 weights, a head of 80; 2 x 2 layers x 1 head x 2 = 8 numbers a token
TINY = Shape(layers=2, hidden=8, heads=2, kv_heads=1, head_dim=2, intermediate=10, vocab=10, tied=True)
SLOW = Profile(flops=1000.0, decode_flops=500.0, bandwidth=100.0, number_bytes=2, layer_seconds=0.25, continuous=True)


def test_the_tiny_shape():
    assert (TINY.layer, TINY.body, TINY.head, TINY.parameters) == (336, 672, 80, 752)
    assert TINY.cache_bytes(1) == 8


def test_decoding_by_hand():
    # 10 replies of 6 tokens, 4 rows: 15 steps; 5 + 3 tokens lie before a token, mean
    read = (752 + 4 * 8 * 8) * 2 / 100  # 20.16 s
    done = 4 * (2 * 752 + 4 * 2 * 2 * 2 * 8) / 500  # 14.08 s
    assert read > done
    assert decode_seconds(TINY, SLOW, 10, 5, 6, 20, 4) == pytest.approx(15 * (read + 0.5))
    # 40 rows, 40 replies, 6 steps: arithmetic takes longer
    done = 40 * (2 * 752 + 256) / 500
    assert done > (752 + 40 * 64) * 2 / 100
    assert decode_seconds(TINY, SLOW, 40, 5, 6, 20, 40) == pytest.approx(6 * (done + 0.5))
    assert decode_seconds(TINY, SLOW, 0, 5, 6, 20, 4) == 0


def test_a_batch_in_process_ends_with_its_longest_reply():
    in_process = Profile(1000.0, 500.0, 100.0, 2, 0.25, continuous=False)
    # 3 batches of 20 steps for 60 tokens: 1 row a step, mean
    step = max((752 + 1 * 8 * 8) * 2 / 100, 1 * (2 * 752 + 256) / 500) + 0.5
    assert decode_seconds(TINY, in_process, 10, 5, 6, 20, 4) == pytest.approx(60 * step)


def test_reading_and_learning_by_hand():
    # 5 tokens: 2 x 672 each, attention 4 x 2 x 2 x 2 x 5 x 2.5, the head once
    assert prefill_seconds(TINY, SLOW, 3, 5) == pytest.approx(3 * (6720 + 400 + 160) / 1000)
    # 11 tokens in all, the head for 6 of them
    forward = 2 * 672 * 11 + 32 * 11 * 5.5 + 2 * 80 * 6
    assert learn_seconds(TINY, SLOW, 7, 5, 6, 4) == pytest.approx(7 * 4 * forward / 1000)
    assert update_seconds(SLOW, 50, 2) == pytest.approx(2 * 50 * 28 / 100)


def test_passes():
    assert passes_of(lora=False, kl=False, updates=1, checkpointing=False) == 3
    assert passes_of(lora=True, kl=False, updates=1, checkpointing=False) == 2
    assert passes_of(lora=False, kl=True, updates=4, checkpointing=True) == 6


def test_profiles_of_devices():
    p = profile(DEVICES["h100"], 2, engine=True)
    assert (p.flops, p.bandwidth, p.continuous) == (0.4 * 989e12, 0.6 * 3350e9, True)
    assert profile(DEVICES["h100"], 4, engine=False).flops == 0.4 * 67e12  # no TF32: torch leaves it off


def test_a_4b_model_on_an_h100_decodes_within_known_bounds():
    """One row: the weights, 8.04 GB at 2,010 GB/s, allow 250 tokens a second at most; 256 rows give thousands."""
    shape, p = KNOWN["Qwen/Qwen3-4B-Base"], profile(DEVICES["h100"], 2, engine=True)
    one = 1000 / decode_seconds(shape, p, 1, 300, 1000, 4096, 1)
    many = 256 * 1000 / decode_seconds(shape, p, 256, 300, 1000, 4096, 256)
    assert 180 < one < 250 and 8_000 < many < 20_000


# -- time of a recipe


def test_gpu_time_by_hand():
    recipe = load_recipe("testbed/r_quest", FULL)
    cost, device = estimate(recipe, fill=1.0), DEVICES["h100"]
    time = gpu_time(recipe, cost, device, 1)
    shape, p = shape_of("testbed:base"), profile(device, 4, engine=False)
    stages = {s.stage: s for s in time.a_round}
    alone = decode_seconds(shape, p, 10, 300, 50, 50, recipe.generation.batch) + prefill_seconds(shape, p, 1, 300)
    assert stages["candidates"].sampling == pytest.approx(alone)
    assert stages["candidates"].learning == 0 and stages["candidates"].elapsed == pytest.approx(alone)
    learned = learn_seconds(shape, p, 30, 300, 40, 4) + update_seconds(p, shape.parameters, 3)
    assert stages["solver"].learning == pytest.approx(learned)  # 1 update a batch, KL on: 4 passes
    assert time.busy == pytest.approx(
        sum(s.sampling + s.learning for s in time.once) + 3 * sum(s.sampling + s.learning for s in time.a_round)
    )


def test_more_devices_help_where_the_recipe_uses_them():
    recipe = load_recipe("qwen3-4b-base/r_quest")
    cost = estimate(recipe)
    one, four, eight = (gpu_time(recipe, cost, DEVICES["h200"], n) for n in (1, 4, 8))
    solver = [next(s for s in t.a_round if s.stage == "solver").elapsed for t in (one, four, eight)]
    assert solver[0] / solver[1] > 2 and solver[1] == solver[2]  # 4 processes
    pool = [next(s for s in t.a_round if s.stage == "assessment").elapsed for t in (one, four)]
    assert pool[0] == pool[1]  # one process answers
    given = ["backends.default={kind: server, replicas: 4, concurrency: 1024}"]
    served = load_recipe("qwen3-4b-base/r_quest", given)
    time = gpu_time(served, cost, DEVICES["h200"], 4)
    assert next(s for s in time.a_round if s.stage == "assessment").elapsed < pool[0] / 8


def test_endpoints_are_not_counted():
    given = ["backends.base={kind: endpoint, base_urls: ['http://127.0.0.1:9/v1'], model: m}"]
    recipe, without = load_recipe("qwen3-4b-base/r_quest", given), load_recipe("qwen3-4b-base/no_novelty")
    time = gpu_time(recipe, estimate(recipe), DEVICES["h100"], 4)
    assert time.outside and frozen_models(recipe) == 1
    assert "endpoints are not counted" in gpu_table(recipe, estimate(recipe))
    assert not gpu_time(without, estimate(without), DEVICES["h100"], 4).outside


# -- memory and disk


def test_memory_by_hand():
    given = ["accelerate_config=ddp.yaml", "generation.batch=512", "micro_batch=4", "gradient_checkpointing=false"]
    recipe = load_recipe("qwen3-4b-base/r_quest", given)
    n, shape = 4_022_272_000, KNOWN["Qwen/Qwen3-4B-Base"]
    whole, lora, shard = memory_table(recipe, shape)
    assert (whole.weights, whole.gradients, whole.optimiser, whole.reference) == (6 * n, 4 * n, 8 * n, 4 * n)
    assert (whole.frozen, whole.copy, whole.own) == (2 * 2 * n, 0, True)  # the last solver and the base
    assert lora.weights == 2 * n + 4 * shape.lora(16) and lora.reference == 0
    assert lora.gradients + lora.optimiser == 12 * shape.lora(16)
    assert shard.optimiser == 2 * n and shard.copy == 2 * n
    assert shard.weights == n + 4 * (100_925_440 + 151_936 * 2560)
    row = (300 + 4096) * 147_456 + 12 * 151_936
    assert whole.cache == 512 * row
    assert whole.peak == whole.kept + max(whole.activations, whole.cache)
    assert rows_that_fit(recipe, shape, 80e9, 24e9) == int(48e9 // row) == 73
    tokens = 4 * 4396
    layer = 2 * (10 * 2560 + 4 * 4096 + 6 * 1024 + 4 * 9728) * tokens
    tile = 8 * 4096 * 32768
    assert activations(recipe, shape) == 36 * layer + tile
    less = load_recipe("qwen3-4b-base/r_quest", [*given[:-1], "gradient_checkpointing=true"])
    assert activations(less, shape) == 36 * 2 * 2560 * tokens + layer + tile


@pytest.mark.parametrize(
    ("name", "given", "models"),
    [
        ("r_quest", [], 2),
        ("r_zero_code", [], 1),
        ("frozen_judge", [], 3),
        ("ask_e", [], 2),
        ("r_quest", ["backends.base.kind=vllm", "processes=1"], 2),
        ("r_quest", ["backends.base.kind=server"], 1),
        ("r_quest", ["backends.default.kind=server"], 0),
    ],
)
def test_frozen_models_in_the_main_process(name, given, models):
    assert frozen_models(load_recipe(f"qwen3-4b-base/{name}", given)) == models


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ([], 16.089),  # weights of the last solver and the base, 2 bytes each
        (["backends.default.kind=vllm", "backends.default.gpu_memory=0.2"], 2 * 16),
        (["backends.default.kind=vllm"], 2 * 0.92 * 80),
        (["backends.base.kind=vllm", "backends.base.gpu_memory=0.25"], 8.0445 + 20),
        (["backends.default.kind=server", "backends.default.gpu_memory=0.3"], 2 * 24),  # on the first GPU, as training
        (["backends.default.kind=server", "backends.default.devices=['1']"], 0),
        (["backends.default.kind=endpoint", "backends.default.base_urls=['http://a/v1']", "backends.solver.kind=server",
          "backends.solver.replicas=2", "backends.solver.gpu_memory=0.1", "backends.questioner.kind=server"], 16),
    ],
)  # fmt: skip
def test_engines_take_their_share_of_the_device(given, taken):
    recipe = load_recipe("qwen3-4b-base/r_quest_one_gpu", given)
    [own] = [m for m in memory_table(recipe, KNOWN["Qwen/Qwen3-4B-Base"], 80e9) if m.own]
    assert own.frozen == pytest.approx(taken * 1e9, rel=1e-4)


def test_sharding_is_read_from_the_accelerate_config(tmp_path):
    assert not sharded(load_recipe("qwen3-4b-base/r_quest", ["accelerate_config=ddp.yaml"]))
    for text in ("distributed_type: FSDP", "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}"):
        (tmp_path / "a.yaml").write_text(text)
        recipe = load_recipe("qwen3-4b-base/r_quest", [f"accelerate_config={tmp_path / 'a.yaml'}"])
        assert sharded(recipe)
        assert [m.title for m in memory_table(recipe, TINY) if m.own] == ["full, sharded over 4"]


def test_disk_by_hand():
    recipe = load_recipe("testbed/r_quest", SMALL)
    found = disk(recipe, TINY, fill=0.5)
    assert (found.checkpoint, found.checkpoints) == (4 * 752, 1 + 2 * 3)
    text = 0.5 * 4 * (26 * 50 + 26 * (5 + 6) * 40)
    assert found.records == 3 * (text + 26 * 1000)
    assert found.savepoints == 2 * 752 * (4 + 4 + 4)  # two at a time: weights and two moments in float32
    assert found.total == 7 * 4 * 752 + found.records + found.savepoints
    assert disk(load_recipe("testbed/r_quest", [*SMALL, "save_minutes=0"]), TINY, 0.5).savepoints == 0
    at_most = {
        keep: disk(load_recipe("testbed/r_quest", [*SMALL, f"keep_checkpoints={keep}"]), TINY, 0.5) for keep in (2, 5)
    }
    assert {keep: d.checkpoints for keep, d in at_most.items()} == {2: 1 + 2 * 3, 5: 1 + 2 * 3}  # a run of three rounds
    longer = load_recipe("testbed/r_quest", [*SMALL, "keep_checkpoints=2", "rounds=10"])
    assert disk(longer, TINY, 0.5).checkpoints == 1 + 2 * (2 + 1)
    lora = load_recipe("qwen3-4b-base/r_quest_one_gpu")
    assert disk(lora, TINY, 0.5).checkpoint == 4 * 752  # merged, in float32
    assert disk(lora, TINY, 0.5).savepoints == 2 * 12 * TINY.lora(lora.lora.rank)


# -- every shipped recipe


@pytest.mark.parametrize("name", [name for name, _ in list_recipes()])
def test_every_shipped_recipe_has_finite_figures(name):
    recipe = load_recipe(name)
    cost = estimate(recipe)
    assert 0 < cost.expected < cost.tokens
    for device in DEVICES.values():
        time = gpu_time(recipe, cost, device, recipe.processes)
        assert math.isfinite(time.busy) and 0 < time.elapsed <= 1.001 * time.busy
    shown = f"{table(cost)}\n{gpu_table(recipe, cost)}"
    assert "GPU h" in shown and "disk:" in shown and not re.search(r"\b(nan|inf)\b", shown)


def test_an_askers_training_by_hand():
    given = ["steps=5", "groups=2", "sessions=4", "update_groups=1", "probes=1", "checks=3", "audit=2", "max_turn_tokens=10",
             "max_solution_tokens=20", "heldout_pairs=[[rung-2, base]]", "evaluation.sessions=3", "evaluation.every=2",
             "evaluation.checks=1", "evaluation.resamples=6"]  # fmt: skip
    found = asker_estimate(load_asker_training("aske/testbed-train", given), 100.0, 0.5)
    sessions, evaluated = 5 * 2 * 4, 4 * 3  # evaluations after 0, 2, 4 and 5 steps
    assert {c.stage: (c.replies, c.tokens) for c in found.once} == {
        "asker's turns": (2 * sessions, 2 * sessions * 10),
        "solvers": (4 * sessions, 4 * sessions * 20),
        "cross-checks": (5 * sessions, 5 * sessions * 20),
        "evaluations": (6 * evaluated, 2 * evaluated * 10 + 4 * evaluated * 20),
        "their checks": (evaluated, evaluated * 20),
        "chance line": (12 * evaluated, 12 * evaluated * 20),
    }
    assert found.expected == found.tokens / 2
    learned = 0.5 * sessions * 2 * 10
    assert found.seconds == pytest.approx((found.expected + LEARN_COST * learned) / 100)
    every_other = asker_estimate(load_asker_training("aske/testbed-train", [*given, "steps=4"]), 100.0, 0.5)
    assert every_other.once[4].replies == 3 * 3  # after 0, 2 and 4: the last is not made twice
