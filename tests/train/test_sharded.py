"""Training with sharded weights: two processes against one, adapters, saving; ZeRO-3 where DeepSpeed is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from selfevolve.train import TrainingError
from selfevolve.train.launch import command, launch
from tests.train.sharded_stage import Case, spec_of

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("trl")
load_file = pytest.importorskip("safetensors.torch").load_file

ROOT = Path(__file__).parents[2]
BASE = str(ROOT / "selfevolve" / "testbed" / "backbones" / "base")  # output head tied to the embedding
LORA: dict[str, Any] = {"policy": BASE, "lora": True, "rate": 0.01}


@dataclass(frozen=True)
class Outcome:
    """What a case left."""

    folder: Path
    name: str
    ranks: list[dict[str, Any]]  # the processes' records

    @property
    def texts(self) -> list[list[str]]:
        """Completions by step, as the reward saw them."""
        return self.ranks[0]["texts"]  # type: ignore[no-any-return]

    @property
    def live(self) -> dict[str, Any]:
        """Trained weights, gathered, before they were saved."""
        return torch.load(self.folder / f"{self.name}.pt", weights_only=True)  # type: ignore[no-any-return]

    @property
    def saved(self) -> dict[str, Any]:
        """Parameters of the written folder, as transformers loads it."""
        model = transformers.AutoModelForCausalLM.from_pretrained(self.folder / self.name)
        return {name: parameter.detach() for name, parameter in model.named_parameters()}

    def facts(self, name: str) -> list[float]:
        """Return a field of the log by step."""
        return [row[name] for row in self.ranks[0]["log"]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Outcome]]:
    """Return what trains some cases in child processes of one fresh interpreter, all on one core."""

    def train(*cases: Case) -> list[Outcome]:
        folder = tmp_path_factory.mktemp("sharded")
        texts = [json.dumps(case.__dict__) for case in cases]
        line = [sys.executable, "-W", "ignore", "-m", "tests.train.sharded_stage", str(folder), *texts]
        done = subprocess.run(
            line, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=900
        )
        assert done.returncode == 0, done.stderr[-3000:]
        outcomes = []
        for case in cases:
            paths = sorted(folder.glob(f"{case.name}-[01].json"))
            assert len(paths) == (2 if case.sharding else 1), done.stderr[-3000:]
            outcomes.append(Outcome(folder, case.name, [json.loads(path.read_text()) for path in paths]))
        return outcomes

    return train


def assert_same_training(sharded: Outcome, alone: Outcome, share: float = 0.5) -> None:
    """Completions and what they led to are those of one process; each process holds a share of the weights."""
    for record in sharded.ranks:
        assert record["held"] == pytest.approx(record["all"] * share, rel=0.01)
        assert record["log"][0]["kl"] == pytest.approx(0.0, abs=1e-6)  # each process has the reference's weights
    assert sharded.ranks[1]["texts"] == []  # the reward runs on the main process alone
    assert sharded.texts == alone.texts
    for name in ("loss", "grad_norm", "reward_mean"):
        assert sharded.facts(name) == pytest.approx(alone.facts(name), rel=1e-4, abs=1e-6)
    one, two = alone.saved, sharded.saved
    assert set(one) == set(two)
    for name in one:  # steps of Adam are `rate` long, so a gradient near 0 may turn: rare and small, by its epsilon
        assert two[name].dtype is one[name].dtype
        assert float((one[name] - two[name]).abs().max()) < 1e-4, name
        assert float((one[name] - two[name]).abs().mean()) < 1e-7, name


def test_two_processes_with_sharded_weights_learn_what_one_learns(run: Callable[..., list[Outcome]]) -> None:
    alone, sharded = run(Case("one", BASE), Case("two", BASE, "fsdp2"))
    assert [record["sharding"] for record in sharded.ranks] == ["fsdp2", "fsdp2"]
    assert_same_training(sharded, alone)
    live, saved = sharded.live, sharded.saved
    assert set(live) == set(saved)
    assert all(torch.equal(live[name], saved[name]) for name in live)
    before = load_file(Path(BASE) / "model.safetensors")["model.norm.weight"].float()
    assert float((saved["model.norm.weight"] - before).abs().mean()) > 1e-4  # far more than the tolerance above


@pytest.mark.slow
@pytest.mark.parametrize("given", [{"policy": BASE}, LORA], ids=["whole", "adapters"])
def test_a_sharded_stage_goes_on_from_its_savepoint(run: Callable[..., list[Outcome]], given: dict[str, Any]) -> None:
    whole, stopped, rest = run(
        Case("whole", sharding="fsdp2", **given),
        Case("stopped", sharding="fsdp2", points="points", stop=True, **given),
        Case("rest", sharding="fsdp2", points="points", **given),
    )
    assert all("stopped here" in record["error"] for record in stopped.ranks)
    assert (rest.folder / "points" / "checkpoint-1" / "step.json").is_file()
    assert rest.texts == whole.texts[1:] and [row["step"] for row in rest.ranks[0]["log"]] == [1, 2]
    assert rest.facts("loss") == whole.facts("loss")
    one, two = whole.saved, rest.saved
    assert set(one) == set(two) and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.slow
def test_adapters_under_sharding(run: Callable[..., list[Outcome]]) -> None:
    alone, sharded, still = run(
        Case("one", **LORA),
        Case("two", sharding="fsdp2", **LORA),
        Case("still", sharding="fsdp2", **{**LORA, "rate": 1e-9}),
    )
    assert_same_training(sharded, alone)
    assert still.texts[0] == sharded.texts[0]
    assert still.texts[1] != sharded.texts[1]  # a changed adapter changes what is sampled
    live, saved = sharded.live, sharded.saved
    for name, merged in saved.items():
        stem = "base_model.model." + name.removesuffix(".weight")
        if f"{stem}.base_layer.weight" not in live:
            assert torch.equal(merged, live[f"{stem}.weight"])
            continue
        delta = live[f"{stem}.lora_B.default.weight"] @ live[f"{stem}.lora_A.default.weight"]  # alpha / rank = 2
        torch.testing.assert_close(merged, live[f"{stem}.base_layer.weight"] + 2 * delta)
        assert float(delta.abs().max()) > 0


@pytest.mark.slow
def test_ways_to_load_to_checkpoint_and_to_compute(run: Callable[..., list[Outcome]], tmp_path: Path) -> None:
    from tests.tiny_model import save_tiny

    tiny = str(save_tiny(tmp_path / "tiny", words=60, hidden=32, layers=2, spread=8.0))  # its head is not tied
    plain, lean, again, half, half_lora, tied_not, tied_not_alone, flat = run(
        Case("plain", BASE, "fsdp2"),
        Case("lean", BASE, "fsdp2", lean=True),
        Case("again", BASE, "fsdp2", checkpointed=True),
        Case("half", BASE, "fsdp2", dtype="bfloat16"),
        Case("half-lora", sharding="fsdp2", dtype="bfloat16", lean=True, **LORA),
        Case("tiny", tiny, "fsdp2"),
        Case("tiny-one", tiny),
        Case("flat", BASE, "fsdp2", flat=True, kl=0.0),
    )
    for other in (lean, again):
        assert other.texts == plain.texts
        assert other.facts("kl")[0] == pytest.approx(0.0, abs=1e-6)
        assert all(float((other.saved[name] - values).abs().max()) < 1e-4 for name, values in plain.saved.items())
    assert_same_training(tied_not, tied_not_alone)
    assert {values.dtype for values in half.saved.values()} == {torch.float32}  # trained weights stay wide
    assert {values.dtype for values in half_lora.saved.values()} == {torch.float32}  # adapters merged in float32
    for outcome in (half, half_lora):
        assert outcome.facts("kl")[0] == pytest.approx(0.0, abs=1e-3) and len(outcome.texts) == 2
    assert all("no weight changed" in record["error"] for record in flat.ranks)  # on every process, so none waits


@pytest.mark.slow
def test_the_recipes_configuration_shards_on_cpu(tmp_path: Path) -> None:
    config = ROOT / "recipes" / "accelerate" / "fsdp2.yaml"
    case = json.dumps(Case("case", BASE).__dict__)
    launch(["tests.train.sharded_stage", str(tmp_path), case], 2, config, cpu=True, echo=lambda _: None)
    first, second = (json.loads((tmp_path / f"case-{rank}.json").read_text()) for rank in range(2))
    assert first["sharding"] == second["sharding"] == "fsdp2"
    assert first["held"] + second["held"] == pytest.approx(first["all"], rel=0.01)
    assert first["log"][0]["kl"] == pytest.approx(0.0, abs=1e-6)  # one process read the weights, both have them
    assert len(first["texts"]) == 2 and second["texts"] == []


@pytest.mark.slow
def test_deepspeed(run: Callable[..., list[Outcome]]) -> None:
    pytest.importorskip("deepspeed", reason="DeepSpeed is not installed")
    one, two, lora_one, lora, stage2, *halves = run(
        Case("one", BASE),
        Case("two", BASE, "zero3"),
        Case("lora-one", **LORA),
        Case("lora", sharding="zero3", **LORA),
        Case("stage2", BASE, "zero2"),
        Case("half2", BASE, "zero2", dtype="bfloat16", rate=1e-6),
        Case("half3", BASE, "zero3", dtype="bfloat16", rate=1e-6),
        Case("half-lora", BASE, "zero3", lora=True, dtype="bfloat16", rate=1e-6),
    )
    assert two.ranks[0]["sharding"] == "zero3" and stage2.ranks[0]["sharding"] == "zero"
    assert_same_training(two, one)
    assert_same_training(lora, lora_one)
    assert_same_training(stage2, one, share=1.0)
    before = load_file(Path(BASE) / "model.safetensors")
    for half in halves:  # steps that bfloat16 weights would lose
        moved = max(float((values - before[name].float()).abs().max()) for name, values in half.saved.items())
        assert 0 < moved < 4e-6


def accelerator(fsdp: int | None = None, zero: int | None = None) -> Any:
    """Return a stand-in for an accelerator with FSDP of a version, or DeepSpeed of a stage."""
    state = SimpleNamespace(deepspeed_plugin=None if zero is None else SimpleNamespace(zero_stage=zero))
    if fsdp is not None:
        state.fsdp_plugin = SimpleNamespace(fsdp_version=fsdp)
    return SimpleNamespace(state=state)


def test_sharding_is_read_from_the_accelerator() -> None:
    from selfevolve.train.sharded import Sharding, sharding_of

    assert sharding_of(accelerator()) is Sharding.NONE
    assert sharding_of(accelerator(zero=2)) is Sharding.ZERO  # weights are whole
    assert sharding_of(accelerator(zero=0)) is Sharding.NONE
    assert sharding_of(accelerator(zero=3)) is Sharding.ZERO3
    assert sharding_of(accelerator(fsdp=2)) is Sharding.FSDP2
    with pytest.raises(TrainingError, match="fsdp_version is 1"):
        sharding_of(accelerator(fsdp=1))


def test_a_sharding_configuration_is_not_set_aside_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate.utils import DistributedType

    from selfevolve.train import sharded

    shared: dict[str, Any] = {}

    class State:
        distributed_type = DistributedType.MULTI_CPU
        _shared_state = shared

    monkeypatch.setattr(sharded, "PartialState", State)
    sharded.honour_config_on_cpu()
    assert shared == {}
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    sharded.honour_config_on_cpu()
    assert shared == {"distributed_type": DistributedType.MULTI_GPU}
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(TrainingError, match="DeepSpeed was asked for on a CPU"):
        sharded.honour_config_on_cpu()


def test_deepspeed_computes_in_bfloat16_from_wide_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    from selfevolve.train.sharded import autocast_by_deepspeed

    full = spec_of(Case("x", BASE, dtype="bfloat16"))
    assert not autocast_by_deepspeed(full)
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    assert autocast_by_deepspeed(full)
    assert not autocast_by_deepspeed(spec_of(Case("x", BASE)))
    assert not autocast_by_deepspeed(spec_of(Case("x", dtype="bfloat16", **LORA)))


def test_the_launcher_keeps_a_sharding_configuration_on_cpu() -> None:
    folder = ROOT / "recipes" / "accelerate"
    for name, flag in (("fsdp2", False), ("zero3", False), ("ddp", True), ("cpu_2", True)):
        assert ("--multi_gpu" in command(["m"], 2, folder / f"{name}.yaml", cpu=True)) is flag, name


def test_zero3_parameters_are_gathered_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # a stand-in with DeepSpeed's interface: values lie in `full`, those of the optimiser in `wide`
    from selfevolve.train.sharded import Sharding, fingerprint, whole

    @contextmanager
    def gathered(parameters: list[Any]) -> Iterator[None]:
        for parameter in parameters:
            parameter.data = parameter.full
        yield
        for parameter in parameters:
            parameter.data = torch.empty(0)

    package, zero, utils = ModuleType("deepspeed"), ModuleType("deepspeed.zero"), ModuleType("deepspeed.utils")
    zero.GatheredParameters = gathered  # type: ignore[attr-defined]
    utils.safe_get_full_fp32_param = lambda p: p.wide.flatten() if p.wide is not None else None  # type: ignore[attr-defined]
    package.zero, package.utils = zero, utils  # type: ignore[attr-defined]
    for module in (package, zero, utils):
        monkeypatch.setitem(sys.modules, module.__name__, module)

    def parameter(values: list[list[float]], wide: bool, trained: bool) -> Any:
        made = torch.nn.Parameter(torch.empty(0, dtype=torch.bfloat16), requires_grad=trained)
        made.full = torch.tensor(values, dtype=torch.bfloat16)
        made.wide = torch.tensor(values) if wide else None
        made.ds_shape = made.full.shape
        return made

    exact = [[1.0009765625, 2.0], [3.0, 4.0]]  # the first value has no bfloat16 of its own
    trained, frozen = parameter(exact, True, True), parameter(exact, False, False)
    got = {
        name: values.clone()
        for name, values in whole([("a._checkpoint_wrapped_module.b", trained), ("c", frozen)], Sharding.ZERO3, "cpu")
    }
    assert set(got) == {"a.b", "c"}
    assert got["a.b"].tolist() == exact  # the optimiser's own copy
    assert got["c"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert frozen.data.numel() == 0  # freed again
    model = torch.nn.Module()
    model.trained, model.frozen = trained, frozen
    assert fingerprint(model, Sharding.ZERO3, "cpu") == [(sum(exact[0] + exact[1]), exact[0][0] ** 2 + 29)]
