"""Sessions through a server with faults: whatever it does, an always-right solver is never counted as wrong.

Both boundary solvers and the cross-check are right in every reply that arrives whole. So every session is too easy, or
ungradable with its reason; any other label would be a fault of the network that was taken for a fault of a solver.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from bench_helpers import Keyed, asker, entry, lines, settings

from aske import Label, SessionRecord
from aske.bench import start
from aske.regrade import rescore
from aske.settings import Entry
from selfevolve.sampling import Sampler

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sampling"))
from fake_server import FakeServer, Fault, Faults

KINDS = (Fault.TOO_MANY, Fault.SERVER_ERROR, Fault.HANG, Fault.CUT_OFF, Fault.EMPTY_CHOICES, Fault.N_IGNORED)
MODELS = ("asker", "a", "b", "judge")
REASONS = {"http", "timeout"}


def serve(body: dict[str, Any], index: int) -> str:
    """The script of the server: an asker that asks sums, and solvers that solve them."""
    last = body["messages"][-1]["content"]
    if body["model"] == "asker":
        drawn = int.from_bytes(sha256(f"{body['seed']}/{index}/{last}".encode()).digest()[:4], "big")
        text = f"What is {drawn % 997} + {drawn // 997 % 991}?"
        return f"#Reasoning#\nr\n#Draft#\nd \\boxed{{1}}\n#Question#\n{text}"
    found = re.search(r"(\d+) \+ (\d+)", last)
    assert found
    return f"I add the two numbers with care.\nSummary: added.\n\\boxed{{{int(found.group(1)) + int(found.group(2))}}}"


def play(folder: Path, server: FakeServer, sessions: int, retries: int, asks: Keyed | None, **rules: int) -> None:
    """Play sessions of one pair; the asker is on the server too where none is given."""
    from selfevolve.sampling.endpoint import Endpoint
    from selfevolve.sampling.http_sampler import HttpSampler

    made: dict[str, Sampler] = {"asker": asks} if asks else {}

    def sampler_of(one: Entry) -> Sampler:
        if one.name not in made:
            endpoint = Endpoint(
                server.urls, one.model, read_seconds=0.25, total_seconds=60, max_retries=retries, backoff_seconds=0.002,
                backoff_max_seconds=0.02, concurrency=48,
            )  # fmt: skip
            made[one.name] = HttpSampler(endpoint)
        return made[one.name]

    def http(name: str) -> dict[str, Any]:
        return entry(name, backend="http", base_urls=list(server.urls)) | {"model": name}

    bench = settings(
        askers=[entry("asker") if asks else http("asker")],
        pool={"solvers": [http("a"), http("b")]},
        cross_check=http("judge"),
        rules={"checks": 3, **rules},
        sessions=sessions,
        wave=500,
        controls={"resamples": 0, "difficulty": 0, "same_model": 0, "no_probing": 0},
        truth=None,
        stop_at_failures=1.0,
    )
    start(bench, folder, sampler_of)


@pytest.fixture
def server(monkeypatch):
    """A server process whose script is this module's `serve`."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    faults = Faults(rate=0.3, kinds=KINDS, hang_seconds=0.6)
    with FakeServer("test_faults:serve", faults, process=True, models=MODELS) as found:
        yield found


def check(folder: Path, sessions: int) -> Counter[str]:
    labels: Counter[str] = Counter()
    for row in lines(folder, "sessions.jsonl"):
        labels[row["label"]] += 1
        assert row["label"] in (Label.TOO_EASY, Label.UNGRADABLE), (row["label"], row["detail"])
        if row["label"] == Label.UNGRADABLE:
            assert row["reason"] in REASONS
        else:
            assert row["marks"] == ["right", "right"]
    assert labels.total() == sessions
    assert labels[Label.CALIBRATED] == 0
    return labels


def faults_met(server: FakeServer) -> Counter[str]:
    stats = Counter(server.stats)
    assert all(stats[kind.value] > 0 for kind in KINDS), stats
    share = sum(stats[kind.value] for kind in KINDS) / stats["requests"]
    assert 0.25 < share < 0.35
    return stats


def test_faults_never_become_labels(server, tmp_path):
    labels = check_all(server, tmp_path, 500, retries=6)
    assert labels[Label.TOO_EASY] >= 495  # seven faults in a row are rare


def test_without_a_second_try_faults_make_sessions_ungradable_and_nothing_else(server, tmp_path):
    labels = check_all(server, tmp_path, 250, retries=0)
    assert labels[Label.UNGRADABLE] > 50
    assert labels[Label.TOO_EASY] > 5


def check_all(server: FakeServer, folder: Path, sessions: int, retries: int) -> Counter[str]:
    play(folder, server, sessions, retries, None, probes=1)
    labels = check(folder, sessions)
    faults_met(server)
    assert rescore(folder).differing == ()
    whole = [SessionRecord.from_json(r) for r in lines(folder, "sessions.jsonl") if r["label"] == "too_easy"]
    assert all(len(call.replies) == (3 if call.seat == "cross_check" else 1) for r in whole for call in r.calls)
    return labels


@pytest.mark.slow
def test_ten_thousand_sessions(server, tmp_path):
    play(tmp_path, server, 10_000, 6, asker("asker"), probes=1)
    labels = check(tmp_path, 10_000)
    stats = faults_met(server)
    print(dict(labels), dict(stats))
    assert labels[Label.TOO_EASY] > 9_900
