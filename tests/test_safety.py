"""What may be loaded and run: no pickled weights, no foreign code unasked, no open ports, no secrets on disk."""

from __future__ import annotations

import ast
import functools
import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
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
from tests.sampling.fake_server import FakeServer, Fault, Faults
from tests.test_run import small

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


@functools.cache
def calls_and_defaults() -> list[tuple[str, ast.AST]]:
    """Return the nodes of our source that load models, set defaults or name addresses, with their places."""
    kinds = (ast.Call, ast.AnnAssign, ast.arguments, ast.keyword, ast.Constant)
    found = []
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, kinds):
                found.append((f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}", node))
    return found


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


# -- secrets

# drawn, since a run folder holds the uncommitted part of the code: this file, while it is edited
KEY, MISTYPED = f"sk-{token_hex(16)}", f"sk-{token_hex(16)}"


def files_with(secret: str, folder: Path) -> list[str]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    assert len(paths) > 3
    return [path.name for path in paths if secret.encode() in path.read_bytes()]


@pytest.fixture
def keyed(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    """A server that fails now and then, wants a key, and repeats a wrong one in its refusal."""
    monkeypatch.setenv("SAFETY_KEY", KEY)
    faults = Faults(rate=0.2, kinds=(Fault.SERVER_ERROR, Fault.TOO_MANY, Fault.BROKEN_JSON))
    with FakeServer(lambda body, index: "\\boxed{DIFFERENT}", faults, key=KEY) as server:
        yield server


def judged_by(server: FakeServer) -> list[str]:
    place = f"{{kind: endpoint, base_urls: ['{server.url}'], model: {server.model}, api_key_env: SAFETY_KEY}}"
    return [f"backends.base={place}"]


def test_a_run_leaves_no_key_in_its_folder(keyed, tmp_path, caplog, capfd):
    from selfevolve import evolve

    with caplog.at_level(logging.DEBUG):
        evolve.run(small("testbed/r_quest", *judged_by(keyed)), tmp_path / "run")
    assert f"Bearer {KEY}" in keyed.core.keys and sum(keyed.stats.values()) > 10
    assert files_with(KEY, tmp_path / "run") == []
    assert files_with("SAFETY_KEY", tmp_path / "run") != []  # the name of the variable is no secret
    told = capfd.readouterr()
    assert KEY not in caplog.text + told.out + told.err


def test_a_refused_key_is_not_repeated(keyed, tmp_path, monkeypatch, caplog):
    from selfevolve import evolve

    monkeypatch.setenv("SAFETY_KEY", MISTYPED)
    with caplog.at_level(logging.DEBUG), pytest.raises(UserError) as caught:
        evolve.run(small("testbed/r_quest", *judged_by(keyed)), tmp_path / "run")
    assert "SAFETY_KEY" in str(caught.value) and MISTYPED not in f"{caught.value!r}{caught.value}{caplog.text}"
    assert files_with(MISTYPED, tmp_path / "run") == []


def test_a_bench_leaves_no_key_in_its_folder(keyed, tmp_path, caplog):
    from aske.bench import start
    from aske.settings import parse_bench

    def entry(name: str) -> dict[str, Any]:
        limits = {"retries": 9}
        place = {"backend": "http", "model": keyed.model, "base_urls": [keyed.url], "api_key_env": "SAFETY_KEY"}
        return {"name": name, "limits": limits, **place}

    data = {
        "askers": [entry("asker")],
        "pool": {"solvers": [entry("a"), entry("b")]},
        "cross_check": entry("judge"),
        "rules": {"probes": 1, "checks": 1},
        "sessions": 3,
        "cache": str(tmp_path / "bench-cache.db"),
        "truth": None,
    }
    with caplog.at_level(logging.DEBUG):
        start(parse_bench(data, "test"), tmp_path / "bench")
    assert f"Bearer {KEY}" in keyed.core.keys
    assert files_with(KEY, tmp_path) == [] and KEY not in caplog.text
