"""What may be loaded and run: no pickled weights, no foreign code unasked, no open ports, no secrets on disk."""

from __future__ import annotations

import ast
import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_model import save_tiny

from selfevolve.backbones import resolve_backbone, trust_warnings
from selfevolve.config import load_recipe
from selfevolve.embed import load_embedder
from selfevolve.errors import UserError
from selfevolve.sampling import weights
from selfevolve.sampling.weights import refuse_pickled, warn_remote_code
from selfevolve.train.spec import TrainingError, TrainSpec

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("selfevolve", "aske", "validity", "novelty")


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return (Path.touch, (self.marker,))


@pytest.fixture
def pickled(tmp_path: Path) -> tuple[Path, Path]:
    """A model folder whose only weights are a pickle that would create a marker, and that marker."""
    folder, marker = save_tiny(tmp_path / "model"), tmp_path / "it-ran"
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(marker)))
    return folder, marker


def test_the_trap_works(pickled):
    folder, marker = pickled
    pickle.loads((folder / "pytorch_model.bin").read_bytes())
    assert marker.exists()


def test_pickled_weights_are_refused_wherever_a_model_is_loaded(pickled):
    from transformers import AutoModelForCausalLM

    from selfevolve.sampling.transformers_sampler import TransformersSampler
    from selfevolve.train.policy import load_policy

    folder, marker = pickled
    spec = TrainSpec(steps=1, prompts=2, responses=2, global_batch=2)
    told = r"pytorch_model\.bin, a pickled file, which can run code(.|\n)*save_pretrained"
    with pytest.raises(ValueError, match=told):
        TransformersSampler(folder)
    with pytest.raises(TrainingError, match=told):
        load_policy(folder, spec)
    with pytest.raises(UserError, match=told):
        resolve_backbone(str(folder))
    with pytest.raises(UserError, match=told):
        load_embedder(str(folder))
    with pytest.raises(OSError, match="safetensors"):  # transformers itself, as for a hub id
        AutoModelForCausalLM.from_pretrained(folder, use_safetensors=True)
    assert not marker.exists()


def test_a_module_of_an_embedder_may_not_be_pickled_either(tmp_path):
    (tmp_path / "2_Dense").mkdir()
    (tmp_path / "2_Dense" / "pytorch_model.bin").write_bytes(b"x")
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "modules.json").write_text('[{"path": ""}, {"path": "2_Dense"}]')
    with pytest.raises(UserError, match=r"2_Dense holds its weights in pytorch_model\.bin"):
        load_embedder(str(tmp_path))


def test_what_is_not_refused(tmp_path):
    refuse_pickled("owner/model")  # a hub id
    refuse_pickled(tmp_path)  # no weights at all: told by whoever loads
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "training_args.bin").touch()
    refuse_pickled(tmp_path)


# -- code from outside


def test_a_recipe_that_trusts_code_is_told_once_with_the_models():
    assert trust_warnings(load_recipe("qwen3-4b-base/r_quest")) == []
    assert trust_warnings(load_recipe("testbed/r_quest", ["trust_remote_code=true"])) == []  # nothing from outside
    given = ["trust_remote_code=true", "referee=model", "referee_model=org/judge"]
    [line] = trust_warnings(load_recipe("qwen3-4b-base/r_quest", given))
    assert "code that comes with Qwen/Qwen3-4B-Base, org/judge will run" in line
    more = [*given, "ask_e.pairs=[[org/a, current]]", "ask_e.cross_check=questioner"]
    [line] = trust_warnings(load_recipe("qwen3-4b-base/ask_e", more))
    assert "Qwen/Qwen3-4B-Base, org/judge, org/a will run" in line


def test_a_loader_that_trusts_code_says_so_once_a_model(tmp_path, caplog, monkeypatch):
    from selfevolve.sampling.transformers_sampler import TransformersSampler
    from selfevolve.train.policy import load_policy

    monkeypatch.setattr(weights, "_told", set())
    folder = save_tiny(tmp_path / "model")
    with caplog.at_level(logging.WARNING):
        TransformersSampler(folder)
        assert "trust_remote_code" not in caplog.text
        for _ in range(2):
            TransformersSampler(folder, trust_remote_code=True)
            load_policy(folder, TrainSpec(steps=1, prompts=2, responses=2, global_batch=2, trust_remote_code=True))
        warn_remote_code("org/other")
    told = [record.getMessage() for record in caplog.records if "trust_remote_code" in record.getMessage()]
    assert len(told) == 2 and str(folder) in told[0] and "org/other" in told[1]


# -- what the source says


def calls_and_defaults() -> Iterator[tuple[str, ast.AST]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}", node


def test_every_model_is_loaded_from_safetensors():
    seen, lax = 0, []
    for where, node in calls_and_defaults():
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        model = name.startswith(("AutoModel", "Gemma", "Qwen", "Llama")) and name.endswith(".from_pretrained")
        if model or name.endswith("SentenceTransformer"):
            seen += 1
            given = ast.unparse(node)
            if "use_safetensors=True" not in given and "'use_safetensors': True" not in given:
                lax.append(where)
    assert seen >= 5 and lax == []


def test_code_from_outside_is_off_by_default():
    seen, on = 0, []
    for where, node in calls_and_defaults():
        pairs: list[tuple[str, ast.expr | None]] = []
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            pairs = [(node.target.id, node.value)]
        elif isinstance(node, ast.arguments):
            named = [*node.posonlyargs, *node.args]
            pairs = [(a.arg, d) for a, d in zip(named[len(named) - len(node.defaults) :], node.defaults, strict=True)]
            pairs += [(a.arg, d) for a, d in zip(node.kwonlyargs, node.kw_defaults, strict=True)]
        for name, default in pairs:
            if name == "trust_remote_code" and default is not None:
                seen += 1
                if not ast.unparse(default).startswith(("False", "Field(default=False")):
                    on.append(where)
        if isinstance(node, ast.keyword) and node.arg == "trust_remote_code" and ast.unparse(node.value) == "True":
            on.append(where)
    assert seen >= 4 and on == []


def test_what_we_start_listens_on_this_machine_only():
    """The addresses that mean "every network" stand nowhere but where they are replaced for a client."""
    open_to_all = [
        where
        for where, node in calls_and_defaults()
        if isinstance(node, ast.Constant) and node.value in ("0.0.0.0", "::")
    ]
    assert {where.split(":")[0] for where in open_to_all} <= {"selfevolve/serving/process.py"}
    assert load_recipe("qwen3-4b-base/r_quest").backends.default.host == "127.0.0.1"
