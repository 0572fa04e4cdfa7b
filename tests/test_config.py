"""Recipes: reading, merging, overriding, and the messages for what does not fit."""

import json
from hashlib import sha256
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from selfevolve.config import (
    Recipe,
    config_hash,
    differences,
    dump,
    load_recipe,
    missing_files,
    recipe_from_text,
    resolve_recipe_path,
)
from selfevolve.config.describe import key_table
from selfevolve.config.load import section_of
from selfevolve.config.yaml_text import dump_mapping, parse_mapping, parse_value
from selfevolve.errors import ConfigError, UserError


def refused(*overrides: str, recipe: str | Path = "testbed/r_quest") -> str:
    with pytest.raises(ConfigError) as caught:
        load_recipe(recipe, overrides)
    return str(caught.value)


# -- plain scalars


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2e-6", 2e-6),  # YAML 1.1 reads text
        ("2.0e-6", 2e-6),
        ("1E+3", 1000.0),
        (".5", 0.5),
        ("-3", -3),
        ("010", "010"),  # YAML 1.1 reads 8
        ("1:30", "1:30"),  # YAML 1.1 reads 90
        ("off", "off"),  # YAML 1.1 reads false
        ("no", "no"),
        ("none", "none"),
        ("2026-01-02", "2026-01-02"),  # YAML 1.1 reads a date
        ("true", True),
        ("null", None),
        ("", None),
        ("'2e-6'", "2e-6"),
        ("1_000", "1_000"),
        ("[a, 2]", ["a", 2]),
    ],
)
def test_plain_scalars(text, value):
    found = parse_value(text)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("value", ["off", "2e-6", "010", "null", "", "~", "1:30", "true", "a: b", "# x", "é\n"])
def test_text_survives_dump_and_parse(value):
    data, _ = parse_mapping(dump_mapping({"key": value}), "x")
    assert data == {"key": value}


@pytest.mark.parametrize("judge", ["off", "frozen"])
def test_a_dumped_recipe_reads_the_same_in_yaml_1_1(judge):
    recipe = load_recipe("testbed/no_novelty", [f"assessment.validity.judge={judge}", "solver.kl=2e-6"])
    assert yaml.safe_load(dump(recipe)) == recipe.model_dump(mode="json")


@pytest.mark.parametrize("number", [1e-6, 2e-6, 0.1, 1e22, 123456789.125, -0.0])
def test_numbers_survive_dump_and_parse(number):
    data, _ = parse_mapping(dump_mapping({"key": number}), "x")
    assert data["key"] == number and isinstance(data["key"], float)


# -- numbers by declared type (shared case S34)


def test_learning_rate_without_a_decimal_point_is_a_number(tmp_path):
    for text, value in (("2e-6", 2e-6), ("2.0e-6", 2e-6), ("'2e-6'", 2e-6)):
        path = tmp_path / "r.yaml"
        path.write_text(f"base: testbed/r_quest\nsolver:\n  learning_rate: {text}\n")
        assert load_recipe(path).solver.learning_rate == value
    path.write_text("base: testbed/r_quest\nsolver:\n  learning_rate: fast\n")
    message = refused(recipe=path)
    assert f"{path}:3: solver.learning_rate is 'fast'" in message and "(0, 0.1]" in message


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("solver.learning_rate=.nan", "learning_rate is nan"),
        ("solver.learning_rate=.inf", "learning_rate is inf"),
        ("solver.replay=1.5", "less than or equal to 1"),
        ("seed=true", "true and false are no values"),
        ("rounds=2.5", "fractional"),
        ("rounds=null", "rounds is None"),
        ("solver=4", "a group of keys is due here"),
        ("novelty.gate=all", "'none', 'k_sampled' or 'exhaustive'"),
        ("assessment.validity.judge=false", "'current', 'frozen' or 'off'"),
        ("lora.rank=0", "rank of each adapter"),
    ],
)
def test_values_out_of_range(override, words):
    message = refused(override)
    assert f"override {override!r}: " in message and words in message


# -- unknown keys


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("solver.lerning_rate", "'solver.learning_rate'"),
        ("solver_steps", "'solver.steps'"),
        ("assessment.validity.vote", "'assessment.validity.votes'"),
        ("candidate", "'candidates'"),
        ("votes", "'assessment.validity.votes'"),
        ("learning_rate", "'initialisation.learning_rate' or 'questioner.learning_rate' or 'solver.learning_rate'"),
        ("lora.rnk", "'lora.rank'"),
        ("generation.max_new_tokens.solutions", "'generation.max_new_tokens.solution'"),
    ],
)
def test_an_unknown_key_names_the_nearest(key, meant):
    message = refused(f"{key}=1")
    assert f"unknown key {key!r}" in message and f"did you mean {meant}?" in message


def test_an_unknown_key_in_a_file_names_its_line(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text("base: testbed/r_quest\n\nsolver:\n  steps: 2\n  stepz: 3\n")
    assert f"{path}:5: unknown key 'solver.stepz'\ndid you mean 'solver.steps'?" in refused(recipe=path)


def test_an_unknown_key_with_no_neighbour_lists_the_keys():
    assert "the keys here are gate, k" in refused("novelty.qqqqq=1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "not readable as YAML"),
        ("- a\n- b", "a recipe is a mapping"),
        ("seed: 1\nseed: 2", ":2: key 'seed' stands twice, first on line 1"),
        ("solver: {steps: 1, steps: 2}", "key 'solver.steps' stands twice"),
        ("1: 2", "a key must be plain text"),
        ("seed: !!python/object/apply:os.system [ls]", "not readable as YAML"),
        ("base: nowhere.yaml", "base 'nowhere.yaml' is not found"),
        ("base: r.yaml", "form a circle: r.yaml -> r.yaml"),
    ],
)
def test_files_that_are_no_recipes(tmp_path, text, words):
    path = tmp_path / "r.yaml"
    path.write_text(text)
    assert words in refused(recipe=path)


# -- bases and overrides


def test_bases_merge_key_by_key_and_the_last_wins(tmp_path):
    (tmp_path / "base.yaml").write_text("base: testbed/r_quest\ndescription: of the base\nlora: {rank: 4, alpha: 8}\n")
    path = tmp_path / "mine.yaml"
    path.write_text("base: base.yaml\nlora: {rank: 2}\nsolver: {steps: 3}\n")
    recipe = load_recipe(path, ["solver.steps=5", "solver.steps=6"])
    assert recipe.lora is not None and (recipe.lora.rank, recipe.lora.alpha) == (2, 8.0)
    assert recipe.solver.steps == 6 and recipe.solver.prompts == 32
    assert (recipe.name, recipe.description) == ("mine", "")
    assert load_recipe(path, ["lora=null"]).lora is None


@pytest.mark.parametrize("override", ["seed", "=3", "solver.=3", "seed 3"])
def test_overrides_of_the_wrong_form(override):
    assert "is not of the form key=value" in refused(override)


def test_an_override_that_is_no_yaml():
    assert "not readable as YAML" in refused("lora={rank")


def test_an_unknown_recipe_names_the_nearest():
    with pytest.raises(ConfigError, match=r"testbed/r_quest"):
        resolve_recipe_path("testbed/rquest")
    with pytest.raises(ConfigError, match=r"did you mean octothinker-3b/k16 or qwen3-4b-base/k16 or testbed/k16"):
        resolve_recipe_path("k16")
    for name in ("accelerate/ddp", "../pyproject", "/etc/hostname/x"):
        with pytest.raises(ConfigError):
            resolve_recipe_path(name)


@pytest.mark.parametrize("name", ["testbed/r_quest", "testbed/r_quest.yaml", "recipes/testbed/r_quest.yaml"])
def test_ways_to_name_a_recipe(name):
    assert resolve_recipe_path(name).name == "r_quest.yaml"


# -- checks across keys


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["assessment.share_low=0.8"], "share_low is 0.8 and share_high is 0.8"),
        (["solver.global_batch=7"], "set it to one of 1, 2, 4, 8, 16, 32"),
        (["initialisation.enabled=false"], "nothing to replay; set solver.replay: 0"),
        (["processes=2"], "set launcher: accelerate"),
        (["accelerate_config=cpu_2.yaml"], "set launcher: accelerate"),
        (["novelty.k=128"], "128 candidates, so 127 others"),
        (["prompts=standard"], "reads the testbed's control tokens only"),
        (["backbone=some/model", "prompts=standard"], "which knows the testbed's exercises only"),
        (["backbone=some/model", "prompts=standard", "referee=none"], "give a path to labelled questions"),
        (["referee=model"], "name a hub id or a folder"),
        (["referee_model=some/model"], "set referee: model"),
        (["diagnostics.sample=401"], "more than candidates = 400"),
        (["solver.pseudo_label_weight=0"], "learn the format only"),
    ],
)
def test_settings_that_do_not_fit_together(overrides, words):
    assert words in refused(*overrides)


def test_all_conflicts_are_told_at_once():
    message = refused("processes=3", "assessment.share_low=0.9")
    assert "launcher" in message and "share_low" in message


def test_neighbours_of_a_refused_setting_pass():
    assert load_recipe("testbed/r_quest", ["novelty.k=127"]).novelty.k == 127
    assert load_recipe("testbed/r_quest", ["novelty.k=500", "novelty.gate=none"])
    assert load_recipe("testbed/r_quest", ["solver.replay=0", "initialisation.enabled=false"])
    assert load_recipe("testbed/r_quest", ["diagnostics.sample=400"])


# -- batches (shared case S25)


def test_groups_are_checked_before_a_model_is_loaded():
    split = ["launcher=accelerate", "processes=3", "solver.replay=0", "initialisation.enabled=false"]
    message = refused(*split, "questioner.responses=2", "questioner.global_batch=1", "solver.responses=3")
    assert "1 x 2 = 2 sequences does not divide over processes = 3" in message and "out of 1, 2," in message
    assert "at least 2" in refused("solver.responses=1")


# -- schema, hash, dump


def all_fields(model: type[BaseModel], path: str = ""):
    for name, field in model.model_fields.items():
        yield f"{path}{name}", field
        if section := section_of(field.annotation):
            yield from all_fields(section, f"{path}{name}.")


def test_every_key_has_a_description_with_its_range():
    fields = dict(all_fields(Recipe))
    assert len(fields) > 70
    assert [path for path, field in fields.items() if not field.description] == []
    numbers = {p: f for p, f in fields.items() if f.annotation in (int, float)}
    assert len(numbers) > 40
    unbounded = [
        p for p, f in numbers.items() if not any(hasattr(m, b) for m in f.metadata for b in ("ge", "gt", "le"))
    ]
    assert unbounded == []
    # a range needs a figure in words for the reader
    assert [p for p, f in numbers.items() if not any(c.isdigit() for c in f.description or "")] == []


def test_recipes_are_frozen():
    recipe = load_recipe("testbed/r_quest")
    with pytest.raises(ValidationError):
        recipe.seed = 3
    with pytest.raises(ValidationError):
        recipe.solver.steps = 3


def test_defaults_are_a_valid_recipe():
    assert recipe_from_text(dump(Recipe()), "x") == Recipe()


def test_hash_depends_on_settings_and_not_on_names():
    base = load_recipe("testbed/r_quest")
    assert config_hash(base) == config_hash(base.model_copy(update={"name": "x", "description": "y"}))
    hashes = {
        config_hash(load_recipe("testbed/r_quest", [o])) for o in ("seed=1", "rounds=9", "lora.rank=8", "novelty.k=9")
    }
    assert len(hashes | {config_hash(base)}) == 5
    assert len(config_hash(base)) == 16 and int(config_hash(base), 16) >= 0


def test_hash_does_not_depend_on_how_a_number_is_written():
    written = {config_hash(load_recipe("testbed/r_quest", [f"solver.kl={text}"])) for text in ("1e-2", "0.01", "'.01'")}
    assert len(written) == 1


ASK_E = ["reward.rule=ask_e"]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("ask_e.pairs=[[base, base]]", "two copies of one solver"),
        ("ask_e.pairs=[[base, questioner]]", "can only be the cross-check"),
        ("ask_e.pairs=[]", "at least 1 item"),
        ("ask_e.pairs=[[base]]", "reward.rule"),
        ("ask_e.pairs=[[base, current], [current, base]]", "names a pair twice"),
        ("ask_e.pairs=[[base, '']]", "empty name"),
        ("ask_e.cross_check=current", "would agree with itself"),
        ("ask_e.checks=2", "1 or 3"),
        ("ask_e.probes=-1", "greater than or equal to 0"),
        ("ask_e.temperature=0", "greater than 0"),
        ("ask_e.prompts=standard", "no session is played"),
        ("ask_e.alhpa=2", "did you mean 'ask_e.alpha'"),
    ],
)
def test_ask_e_settings_that_make_no_sense_are_refused(override, said):
    if said != "reward.rule":
        assert said in refused(*ASK_E, override)
    else:
        assert "ask_e.pairs" in refused(*ASK_E, override)


def test_several_machines_need_a_launcher_equal_shares_and_an_address():
    two = ("launcher=accelerate", "processes=4", "machines=2")
    assert "main_address is not given" in refused(*two)
    assert load_recipe("testbed/r_quest", [*two, "main_address=10.0.0.1"]).main_address == "10.0.0.1"
    assert "does not divide over machines = 3" in refused(*two, "machines=3", "main_address=10.0.0.1")
    assert "main_address is '10.0.0.1' but machines is 1" in refused("main_address=10.0.0.1")
    assert "launcher is 'inline'" in refused("machines=2", "main_address=auto")


def test_the_hash_of_one_machine_is_that_of_before():
    one = ("launcher=accelerate", "processes=4")
    two = (*one, "machines=2", "main_address=auto")
    assert config_hash(load_recipe("testbed/r_quest", one)) != config_hash(load_recipe("testbed/r_quest", two))


def test_ask_e_settings_without_its_reward_are_refused():
    assert "set reward.rule: ask_e" in refused("ask_e.probes=3")


def test_a_testbed_solver_has_no_place_among_real_models():
    said = refused(*ASK_E, "ask_e.pairs=[[base, 'testbed:rung-2']]", recipe="qwen3-4b-base/r_quest")
    assert "'testbed:rung-2', which reads the testbed's control tokens only" in said


def test_any_recipe_takes_ask_e_as_its_reward():
    for name in ("testbed/r_quest", "testbed/r_zero_code", "qwen3-4b-base/r_zero_paper", "qwen2.5-0.5b-cpu"):
        recipe = load_recipe(name, ASK_E)
        assert recipe.ask_e.pairs == (("base", "current"),) and recipe.ask_e.cross_check == "questioner"
        assert recipe_from_text(dump(recipe), "dumped") == recipe


def test_the_hash_ignores_ask_e_where_it_is_not_read():
    """A run folder from before these keys existed has the same hash."""
    recipe = load_recipe("testbed/r_quest")
    later = {
        "ask_e",
        "machines",
        "main_address",
        "gradient_checkpointing",
        "keep_checkpoints",
        "backends",
        "save_minutes",
    }
    data = recipe.model_dump(mode="json", exclude={"name", "description", *later})
    del data["reward"]["rule"]
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    assert config_hash(recipe) == sha256(text.encode()).hexdigest()[:16]
    hashes = {config_hash(load_recipe("testbed/r_quest", [*ASK_E, o])) for o in ("seed=0", "ask_e.probes=2")}
    assert len(hashes | {config_hash(recipe)}) == 3


def test_differences_key_by_key():
    old = load_recipe("testbed/r_quest")
    new = load_recipe("testbed/r_quest", ["seed=3", "lora.rank=8", "assessment.validity.votes=7"])
    assert differences(old, new) == [
        "seed: 0 -> 3",
        "lora: null -> (absent)",
        "assessment.validity.votes: 9 -> 7",
        "lora.rank: (absent) -> 8",
        "lora.alpha: (absent) -> 32.0",
        "lora.targets: (absent) -> all-linear",
    ]
    assert differences(old, old) == []


def test_missing_files_are_named(tmp_path):
    recipe = load_recipe("testbed/r_quest", ["prompts=nowhere.yaml", "initialisation.data=nowhere.jsonl"])
    assert [line.split(" is ")[0] for line in missing_files(recipe)] == ["initialisation.data", "prompts"]
    assert missing_files(load_recipe("testbed/r_quest")) == []
    accelerated = load_recipe("testbed/r_quest", ["launcher=accelerate", "accelerate_config=nowhere"])
    assert "ddp.yaml" in missing_files(accelerated)[0]


def test_the_documented_keys_are_the_schema_s():
    """After a change of the schema: python -m selfevolve.config.describe writes the table anew."""
    page = (Path(__file__).parents[1] / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert key_table() in page


def test_json_schema_can_be_made():
    schema = json.dumps(Recipe.model_json_schema())
    assert "AdamW learning rate" in schema


def test_an_error_has_message_and_remedy():
    error = UserError("it is so", "do this")
    assert (error.message, error.remedy, str(error)) == ("it is so", "do this", "it is so\ndo this")
    assert isinstance(error, ValueError)
