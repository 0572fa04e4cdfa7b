"""Configurations and pools: what is refused, what is filled in, and which samplers come out."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from bench_helpers import Keyed, entry, settings
from pydantic import ValidationError

from aske import AskeError
from aske.bench import start
from aske.estimate import estimate
from aske.pool import Samplers, asker_context, load_truth, model_path, seat_sampling, seats
from aske.settings import Entry, differences, find_config, load_bench, load_entry, parse_bench, recipes_folder
from selfevolve.sampling import Sampling, user

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sampling"))
from fake_server import FakeServer

MINIMAL = {
    "askers": [entry("asker")],
    "pool": {"solvers": [entry("a"), entry("b")]},
    "cross_check": "b",
}
LOCAL = "http://127.0.0.1:9/v1"


def write(path: Path, data: object) -> str:
    path.write_text(yaml.safe_dump(data))
    return str(path)


def test_what_is_left_out_is_filled_in():
    bench = parse_bench(MINIMAL, "test")
    assert (bench.rules.probes, bench.rules.checks, bench.sessions) == (4, 3, 10)
    assert bench.pairs == [("a", "b")]
    assert bench.samplings.asker.max_tokens == 2048
    assert bench.cross_checker().name == "b"
    partly = parse_bench({**MINIMAL, "samplings": {"boundary": {"temperature": 0}}}, "test")
    assert partly.samplings.boundary.sampling() == Sampling(temperature=0, max_tokens=4096)


def test_six_solvers_make_fifteen_pairs_in_the_pools_order():
    bench = parse_bench({**MINIMAL, "pool": {"solvers": [entry(n) for n in "abcdef"]}}, "test")
    assert len(bench.pairs) == 15
    assert bench.pairs[:6] == [("a", "b"), ("a", "c"), ("a", "d"), ("a", "e"), ("a", "f"), ("b", "c")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sesions": 3}, "unknown key 'sesions'; did you mean 'sessions'?"),
        ({"rules": {"probe": 3}}, "rules: unknown key 'probe'; did you mean 'probes'?"),
        (
            {"pool": {"solvers": [entry("a", modle="x"), entry("b")]}},
            "pool.solvers.0: unknown key 'modle'; did you mean",
        ),
        ({"pool": {"solvers": [entry("a", limits={"qqq": 1}), entry("b")]}}, "unknown key 'qqq'; the keys are concurr"),
        ({"pool": {"solvers": [entry("a")]}}, "holds 1 solvers; a pair needs 2"),
        ({"pool": {"solvers": [entry("a"), entry("a")]}}, "the name 'a' stands there twice"),
        ({"pool": {"solvers": [entry("a"), entry("b+c")]}}, "name is 'b+c'"),
        ({"pool": {"solvers": [entry("a"), entry("b", backend="http")]}}, "base_urls is empty"),
        ({"pool": {"solvers": [entry("a"), entry("b", base_urls=[LOCAL])]}}, "need backend: http, not transformers"),
        ({"pool": {"solvers": [entry("a"), entry("b", backend="htp")]}}, "(it is 'htp')"),
        ({"cross_check": "c"}, "cross_check is 'c'; it must be one of asker, a, b, or an entry"),
        ({"askers": []}, "askers is empty"),
        ({"sessions": 0}, "sessions: Input should be greater than or equal to 1 (it is 0)"),
        ({"samplings": {"asker": {"temperature": -1}}}, "samplings.asker.temperature"),
        ({"stop_at_failures": 0}, "stop_at_failures"),
    ],
)
def test_mistakes_are_named_with_the_key_and_the_value(change, message):
    with pytest.raises(AskeError) as caught:
        parse_bench({**MINIMAL, **change}, "bench.yaml")
    assert "bench.yaml" in str(caught.value)
    assert message in str(caught.value)


def test_all_mistakes_are_told_at_once():
    with pytest.raises(AskeError) as caught:
        parse_bench({**MINIMAL, "sessions": 0, "wave": 0, "rules": {"checks": 0}}, "test")
    assert str(caught.value).count("greater than or equal to 1") == 3


def test_overrides(tmp_path):
    path = write(tmp_path / "bench.yaml", {**MINIMAL, "rules": {"probes": 4}})
    bench = load_bench(path, ["sessions=3", "rules.probes=1", "pool.solvers.b.ability=2.5", "pool.solvers.0.batch=9",
                              "samplings.asker.temperature=0.5", "truth=null", "controls.same_model=0"])  # fmt: skip
    assert (bench.sessions, bench.rules.probes, bench.controls.same_model) == (3, 1, 0)
    assert (bench.solvers["b"].ability, bench.solvers["a"].batch) == (2.5, 9)
    assert bench.samplings.asker.temperature == 0.5


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("sessions", "is not key=value"),
        ("session=3", "unknown key 'session'; did you mean 'sessions'?"),
        ("pool.solvers.c.ability=1", "'c' is no place or name of a list of 2"),
        ("sessions.x=1", "sessions: Input should be a valid integer"),
        ("name.x=1", "name is 'n' and has no keys"),
        ("seed=[", "is no YAML"),
    ],
)
def test_overrides_that_do_not_fit(tmp_path, override, message):
    path = write(tmp_path / "bench.yaml", {**MINIMAL, "name": "n"})
    with pytest.raises(AskeError) as caught:
        load_bench(path, [override])
    assert message in str(caught.value)


def test_pool_and_prompts_may_be_files_beside_the_configuration(tmp_path):
    write(tmp_path / "pool.yaml", MINIMAL["pool"])
    (tmp_path / "pack.yaml").write_text("solve: 'Now {question}'\n")
    path = write(tmp_path / "bench.yaml", {**MINIMAL, "pool": "pool.yaml", "prompts": "pack.yaml"})
    bench = load_bench(path, ["pool.solvers.a.ability=1"])
    assert bench.solvers["a"].ability == 1
    assert bench.prompts == str(tmp_path / "pack.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [("[1, 2]", "holds list"), ("a: [", "no YAML"), (None, "no configuration")],
)
def test_files_that_are_no_configuration(tmp_path, text, message):
    path = tmp_path / "bench.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(AskeError, match=message):
        load_bench(str(path))


def test_every_shipped_configuration_loads_and_survives_the_round_trip():
    folder = recipes_folder()
    assert folder is not None
    names = [p.stem for p in folder.glob("*.yaml") if not p.stem.endswith("-train")]
    assert {"testbed", "example-http"} <= set(names)
    for name in names:
        bench = load_bench(name)
        assert bench.description
        assert parse_bench(bench.model_dump(mode="json"), "dumped") == bench
        assert load_bench(f"aske/{name}", ["seed=7"]).seed == 7
    assert find_config("testbed") == folder / "testbed.yaml"


def test_the_testbeds_benchmark_is_the_embedded_default():
    bench = load_bench("testbed")
    assert list(bench.solvers) == ["rung-1", "rung-2", "base", "rung-4", "numbers", "stories"]
    assert len(bench.pairs) == 15
    assert (bench.prompts, bench.cross_check, bench.truth) == ("testbed", "rung-4", "selfevolve.testbed:oracle")
    assert all(s.sampling().top_k == 0 for s in (bench.samplings.asker, bench.samplings.boundary))
    for solver in bench.pool.solvers:
        assert Path(model_path(solver.model), "config.json").is_file()


def test_an_entry_in_a_file(tmp_path):
    path = write(tmp_path / "judge.yaml", entry("judge", backend="http", base_urls=[LOCAL]))
    assert load_entry(Path(path)).base_urls == (LOCAL,)


def test_differences_leave_out_how_fast():
    old = settings().model_dump(mode="json")
    new = settings(cache="c.db", sessions=9).model_dump(mode="json")
    new["pool"]["solvers"][0]["limits"]["requests_per_minute"] = 7
    new["pool"]["solvers"][0]["limits"]["retries"] = 1
    assert differences(old, new) == ["pool.solvers.0.limits.retries: 6 -> 1", "sessions: 4 -> 9"]


def test_settings_load_nothing_heavy():
    heavy = ("torch", "transformers", "vllm", "httpx", "scipy", "sklearn", "numpy")
    code = f"import sys, aske.settings, aske.estimate; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ------------------------------------------------------------ samplers


def http(name: str, **more: object) -> Entry:
    return Entry.model_validate({"name": name, "model": "m", "backend": "http", "base_urls": [LOCAL], **more})


def test_entries_of_one_endpoint_share_its_limiter():
    samplers = Samplers(check=False)
    a, b = samplers(http("a", model="x")), samplers(http("b", model="y", sampling={"temperature": 0}))
    assert a is not b
    assert a._limiter is b._limiter
    assert samplers(http("c", model="x", ability=3)) is a
    assert a.name == "x"


def test_the_limits_reach_the_endpoint():
    limits = {"concurrency": 5, "requests_per_minute": 60, "tokens_per_minute": 9000, "deadline": 90, "silence": 20,
              "retries": 2, "budget": {"requests": 10, "completion_tokens": 100}}  # fmt: skip
    urls = ["http://127.0.0.1:11/v1"]
    endpoint = Samplers(check=False)(
        http("a", base_urls=urls, limits=limits, extra_body={"think": False}, api="completions")
    ).endpoint
    assert (endpoint.concurrency, endpoint.requests_per_minute, endpoint.tokens_per_minute) == (5, 60, 9000)
    assert (endpoint.total_seconds, endpoint.read_seconds, endpoint.max_retries) == (90, 20, 2)
    assert (endpoint.budget.requests, endpoint.budget.completion_tokens) == (10, 100)
    assert dict(endpoint.extra_body) == {"think": False}
    assert endpoint.api == "completions"


def test_an_engine_s_arguments_reach_vllm(monkeypatch):
    from selfevolve.sampling import vllm_sampler

    made = []
    monkeypatch.setattr(vllm_sampler, "VllmSampler", lambda model, **keys: made.append((model, keys)) or object())
    samplers, given = Samplers(), {"gpu_memory_utilization": 0.4, "max_model_len": 8192}
    a, b = (Entry.model_validate({"name": n, "model": "m", "backend": "vllm", "engine": given}) for n in "ab")
    assert samplers(a) is samplers(b)
    assert made == [("m", {"name": "m", "engine": given})]
    with pytest.raises(ValidationError, match="engine needs backend: vllm, not transformers"):
        Entry.model_validate({"name": "a", "model": "m", "engine": given})


def test_different_limits_at_one_address_are_refused():
    samplers = Samplers(check=False)
    kept = samplers(http("a", base_urls=["http://127.0.0.1:12/v1"]))
    with pytest.raises(AskeError, match=r"b: .*other limits"):
        samplers(http("b", model="y", base_urls=["http://127.0.0.1:12/v1"], limits={"concurrency": 3}))
    assert kept


def test_a_missing_key_is_told(monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(AskeError, match="NO_SUCH_KEY"):
        Samplers()(http("a", api_key_env="NO_SUCH_KEY"))


def test_an_endpoint_is_asked_for_the_model_when_it_is_first_wanted():
    with FakeServer(models=("m", "n")) as server:
        samplers = Samplers()
        assert samplers(http("a", base_urls=list(server.urls))).name == "m"
        with pytest.raises(AskeError, match=r"b: .*does not serve 'x'; it serves m, n: name one of these"):
            samplers(http("b", base_urls=list(server.urls), model="x"))
        assert server.bodies == []
    with pytest.raises(AskeError, match=r"a: no server answers at .*; start it, or mend base_urls"):
        Samplers()(http("a", base_urls=["http://127.0.0.1:9/dead/v1"]))


@pytest.mark.parametrize("seat", ["askers", "pool", "cross_check"])
def test_a_bench_with_a_wrong_model_ends_before_its_first_session(tmp_path, seat):
    """Whoever sits in the last seat: the second asker is found missing before the first one plays."""
    with FakeServer() as server:

        def one(name: str, wrong: bool = False) -> dict:
            model = "none" if wrong else server.model
            return http(name, base_urls=list(server.urls), model=model).model_dump(mode="json")

        bench = settings(
            askers=[one("first"), one("second", seat == "askers")],
            pool={"solvers": [one("a"), one("b", seat == "pool")]},
            cross_check=one("judge", seat == "cross_check"),
            truth=None,
        )
        with pytest.raises(AskeError, match="does not serve 'none'; it serves fake-model"):
            start(bench, tmp_path / "bench")
        assert server.bodies == []
    assert not (tmp_path / "bench" / "sessions.jsonl").exists()


def test_a_cache_stands_before_endpoints(tmp_path):
    samplers = Samplers(str(tmp_path / "cache.db"), check=False)
    a, b = samplers(http("a", model="x")), samplers(http("b", model="y"))
    assert a.cache is b.cache
    assert (tmp_path / "cache.db").is_file()


def test_a_model_is_loaded_once():
    samplers = Samplers()
    model = "package:selfevolve.testbed/backbones/rung-1"
    one = samplers(Entry(name="one", model=model))
    assert samplers(Entry(name="two", model=model, ability=1.0)) is one
    assert one.name == model  # no path of a machine in the records
    bench = settings()
    assert seats(bench, Entry(name="first", model=model), lambda e: one).context == 1024
    context, count = asker_context(Entry(name="one", model=model), one, Sampling(max_tokens=72))
    assert context == 1024
    prompt = user("<session>")
    assert count is not None
    assert count(prompt) == len(one.prompt_ids([prompt])[0]) > 0


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("package:no_such_package/x", "no package 'no_such_package' is installed"),
        ("package:no.such.package/x", "is installed"),
        ("package:selfevolve.testbed/backbones/none", "holds no folder 'backbones/none'"),
    ],
)
def test_packages_that_are_not_there(model, message):
    with pytest.raises(AskeError, match=message):
        model_path(model)
    assert model_path("owner/model") == "owner/model"


def test_a_model_that_cannot_be_loaded_is_a_users_mistake(tmp_path):
    with pytest.raises(AskeError, match="judge: "):
        Samplers()(Entry(name="judge", model=str(tmp_path)))


def test_the_askers_context():
    plain = SimpleNamespace(name="server")
    assert asker_context(Entry(name="a", model="m"), plain, Sampling()) == (None, None)
    assert asker_context(Entry(name="a", model="m", context=4096), plain, Sampling()) == (4096, None)


def test_seats():
    bench = settings(pool={"solvers": [entry("weak", sampling={"temperature": 0.2}), entry("strong")]})
    found = seats(bench, bench.askers[0], lambda e: Keyed(e.name, lambda p, u, i: ""))
    assert (found.asker.name, found.cross_check.name, list(found.solvers)) == ("first", "judge", ["weak", "strong"])
    assert found.samplings["weak"].temperature == 0.2
    assert found.samplings["strong"] == Sampling(temperature=0.7, max_tokens=4096)
    assert found.side_by_side is False
    assert seat_sampling(bench, "cross_check", bench.cross_checker()).max_tokens == 4096
    remote = settings(pool={"solvers": [http("a").model_dump(), http("b").model_dump()]})
    assert seats(remote, remote.askers[0], lambda e: Keyed(e.name, lambda p, u, i: "")).side_by_side is True


def test_truth_functions():
    assert load_truth("selfevolve.testbed:oracle")("nonsense").valid is False
    for name in ("selfevolve.testbed", "no_such_module:x", "selfevolve.testbed:none"):
        with pytest.raises(AskeError, match="truth is"):
            load_truth(name)


def test_the_estimate_by_hand():
    """2 askers, 3 pairs, 4 sessions: 24; a session has 3 turns (2 probes) and 2 cross-checks: 11 replies."""
    costs = {c.part: (c.items, c.replies, c.tokens) for c in estimate(settings())}
    assert costs["sessions"] == (24, 264, 24 * (3 * 2048 + 6 * 4096 + 2 * 4096))
    assert costs["same-model sessions"] == (12, 132, 12 * (3 * 2048 + 6 * 4096 + 2 * 4096))
    assert costs["questions without probes"] == (8, 48, 8 * (2048 + 3 * 4096 + 2 * 4096))
    assert costs["resamples"] == (24, 144, 144 * 4096) == costs["shuffled pairs"]
    assert costs["difficulty"] == (24, 48, 48 * 4096)


def test_settings_are_read_as_yaml_1_2_and_no_key_stands_twice(tmp_path):
    from aske.yaml12 import parse_yaml

    read = {
        "2e-6": 2e-6,
        "off": "off",
        "010": "010",
        "1:30": "1:30",
        "true": True,
        "3": 3,
        ".5": 0.5,
        "~": None,
        "": None,
    }
    assert {text: parse_yaml(f"a: {text}")["a"] for text in read} == read
    path = tmp_path / "twice.yaml"
    path.write_text("name: one\nseed: 1\nname: two\n")
    with pytest.raises(AskeError, match="key 'name' stands twice, on lines 1 and 3"):
        load_bench(str(path))
