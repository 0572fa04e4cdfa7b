"""Ask-E in verifiers 0.4: `vf-eval` plays the golden sessions against a server on 127.0.0.1."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import golden_sessions
import pytest
from aske_helpers import PACK

from aske import SessionRecord, replay
from aske.game import Seat
from selfevolve.sampling import FinishReason, Message

ROOT = Path(__file__).resolve().parents[2]
MODELS = {Seat.ASKER: "asker", Seat.BOUNDARY_A: "a", Seat.BOUNDARY_B: "b", Seat.CROSS_CHECK: "check"}
ATTEMPTS = 2
needs_verifiers = pytest.mark.skipif(
    importlib.util.find_spec("verifiers") is None,
    reason="verifiers is not installed: pip install selfevolve[verifiers]",
)

CONFIG = """
model = "asker"
push = false
max_concurrent = 1
output_dir = "{out}"
[run]
dir = "run"
[client]
base_url = "{url}"
api_key_var = "NO_KEY_IS_NEEDED"
[env.taskset]
id = "aske-v1"
pairs = [["a", "b"]]
sessions = {sessions}
probes = 2
checks = 3
[env.cross_check]
model = "check"
"""
SEAT = '[env.{seat}.harness]\nid = "aske-v1"\nattempts = 2\nbackoff = 0.01\n'


class Server(ThreadingHTTPServer):
    """Answers each model's requests from its own list, in order, and keeps what it was sent."""

    def __init__(self, rows: list[SessionRecord]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.sent: dict[str, list[dict]] = defaultdict(list)
        self.left: dict[str, list] = defaultdict(list)
        for row in rows:
            for call in row.calls:
                for reply in call.replies:
                    again = ATTEMPTS if reply.finish_reason is FinishReason.ERROR else 1
                    self.left[MODELS[call.seat]] += [reply] * again

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.sent[body["model"]].append(body)
            reply = self.server.left[body["model"]].pop(0)
        if reply.finish_reason is FinishReason.ERROR:
            self.answer(500, {"error": {"message": "500 Internal Server Error"}})
            return
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": reply.text},
            "finish_reason": reply.finish_reason.value,
        }
        usage = {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens, "total_tokens": 0}
        self.answer(
            200,
            {
                "id": "x",
                "object": "chat.completion",
                "created": 1,
                "model": body["model"],
                "choices": [choice],
                "usage": usage,
            },
        )

    def answer(self, status: int, body: dict) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_) -> None:
        pass


def evaluate(folder: Path, rows: list[SessionRecord]) -> tuple[Server, list[dict]]:
    """Run `vf-eval` on the rows and return the server and the episodes, in the order of the sessions."""
    with Server(rows) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        text = CONFIG.format(out=folder, url=url, sessions=len(rows))
        text += "".join(SEAT.format(seat=seat.value) for seat in Seat)
        (folder / "config.toml").write_text(text)
        env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}", "HOME": str(folder), "OMP_NUM_THREADS": "1",
               "XDG_CACHE_HOME": str(folder / "cache")}  # fmt: skip
        command = [
            sys.executable,
            "-c",
            "from verifiers.v1.cli.eval.main import main; main()",
            "@",
            str(folder / "config.toml"),
            "--no-rich",
        ]
        done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-1000:]
    written = [json.loads(line) for line in (folder / "run" / "traces.jsonl").read_text().splitlines()]
    return server, sorted(written, key=lambda episode: episode["task"]["data"]["slot"])


def asker_trace(episode: dict) -> dict:
    (trace,) = [t for t in episode["traces"] if t["agent"]["name"] == "asker"]
    return trace


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vf")
    return evaluate(folder, [row for row, _ in golden_sessions.load()])


@needs_verifiers
def test_the_golden_sessions_have_the_same_labels_and_rewards(run):
    _, episodes = run
    stored = golden_sessions.load()
    assert len(episodes) == len(stored)
    for episode, (row, reward) in zip(episodes, stored, strict=True):
        trace = asker_trace(episode)
        played = SessionRecord.from_json(trace["info"]["aske"])
        assert (played.label, played.grade.reason, played.malformed) == (row.label, row.grade.reason, row.malformed)
        assert (played.question, played.grade.marks, played.flip, played.id) == (
            row.question,
            row.grade.marks,
            row.flip,
            row.id,
        )
        assert played.transcript == row.transcript and played.turns == row.turns
        assert {k: v for k, v in trace["metrics"].items() if v} == {
            k: v for k, v in {row.label.value: 1.0, "malformed": float(row.malformed)}.items() if v
        }
        if reward is None:
            assert not episode["ok"] and not trace["rewards"]
            assert episode["errors"][-1]["message"].endswith(
                f"Ungradable: {played.grade.reason}: {played.grade.detail}"
            )
        else:
            assert {name: r["score"] * r["weight"] for name, r in trace["rewards"].items()} == pytest.approx(
                reward["terms"]
            )


@needs_verifiers
def test_the_records_can_be_replayed(run):
    for episode in run[1]:
        row = SessionRecord.from_json(asker_trace(episode)["info"]["aske"])
        assert replay(row, PACK) == row


@needs_verifiers
def test_every_seat_is_sent_what_the_core_sends(run):
    server, _ = run
    assert not any(server.left.values())
    for seat, model in MODELS.items():
        expected = []
        for row, _ in golden_sessions.load():
            for call in row.calls:
                if call.seat is seat:
                    sent = row.transcript[: call.messages] if isinstance(call.messages, int) else call.messages
                    times = ATTEMPTS if call.replies[0].finish_reason is FinishReason.ERROR else len(call.replies)
                    expected += [sent] * times
        sent = [tuple(Message(m["role"], m["content"]) for m in body["messages"]) for body in server.sent[model]]
        assert sent == expected
    temperatures = {model: {body["temperature"] for body in bodies} for model, bodies in server.sent.items()}
    assert temperatures == {"asker": {1.0}, "a": {0.7}, "b": {0.7}, "check": {0.7}}


@needs_verifiers
def test_only_the_asker_is_trained_and_all_runs_are_local(run):
    for episode in run[1]:
        for trace in episode["traces"]:
            assert trace["agent"]["trainable"] is (trace["agent"]["name"] == "asker")
            assert trace["agent"]["config"]["runtime"]["type"] == "subprocess"


def by_length(questions):
    """Return one vector for all questions."""
    import numpy as np

    return np.ones((len(questions), 2))


@needs_verifiers
def test_a_group_is_remembered_as_a_whole():
    import asyncio
    from types import SimpleNamespace

    import verifiers.v1 as vf

    from aske.adapters.verifiers_env import AskeEnv, Ungradable

    config = vf.resolve_env_config(
        {"taskset": {"id": "aske-v1", "pairs": [["a", "b"]]}, "embedder": "test_verifiers:by_length", "group": 3}
    )
    env = AskeEnv(config)
    rows = [row for row, _ in golden_sessions.load()]

    def finish(row: SessionRecord, key: str) -> float | None:
        trace = vf.Trace(
            task=vf.TraceTask(type="t", data=vf.WireTaskData()),
            agent=vf.AgentInfo(config=vf.AgentConfig(), name="asker"),
        )
        trace.info["aske"] = row.to_json()
        try:
            asyncio.run(env.finalize(SimpleNamespace(key=key), SimpleNamespace(traces=[trace])))
        except Ungradable:
            return None
        return trace.rewards["diversity"].value

    assert [finish(rows[0], "t1"), finish(rows[5], "t1")] == [1.0, None]
    assert finish(rows[0], "t2") == 1.0 and len(env.memory) == 0
    assert finish(rows[1], "t1") == 0.2 and len(env.memory) == 2  # the group of t1 is whole
    assert finish(rows[7], "t2") == pytest.approx(0.0) and len(env.memory) == 2


@needs_verifiers
def test_the_configuration_in_the_docs_is_valid():
    import tomllib

    import verifiers.v1 as vf
    from verifiers.v1.configs.cli.eval import EvalConfig

    page = (ROOT / "docs" / "ask-e-verifiers.md").read_text(encoding="utf-8")
    config = EvalConfig.model_validate(tomllib.loads(page.split("```toml\n")[1].split("```")[0]))
    assert not config.push and len(config.env.taskset.pairs) == 3
    tasks = list(vf.load_environment(config.env).taskset)
    assert [(t.data.pair, t.data.slot) for t in tasks[9:11]] == [(("small", "middle"), 9), (("small", "large"), 0)]
    assert {t.data.flip for t in tasks} == {True, False} and len({t.key for t in tasks}) == 30


@needs_verifiers
def test_a_missing_pair_is_refused():
    import verifiers.v1 as vf

    from aske import AskeError
    from aske.adapters.verifiers_env import AskeEnv

    with pytest.raises(AskeError, match="no boundary pair"):
        AskeEnv(vf.resolve_env_config({"taskset": {"id": "aske-v1"}}))
    AskeEnv(
        vf.resolve_env_config(
            {"taskset": {"id": "aske-v1"}, "boundary_a": {"model": "m"}, "boundary_b": {"model": "m"}}
        )
    )


@needs_verifiers
@pytest.mark.parametrize(
    ("stop", "error", "finish", "said"),
    [
        ("max_total_tokens", None, "error", "context_exhausted"),
        ("provider_error", ("this model's maximum context length is 8192 tokens", 400), "error", "context_exhausted"),
        ("provider_error", ("bad request", 400), "error", "bad request"),
        ("provider_error", ("upstream is slow", 504), "timeout", "upstream is slow"),
        ("agent_timeout", None, "timeout", "the run ended: agent_timeout"),
    ],
)
def test_why_a_seat_gave_no_reply(stop, error, finish, said):
    import verifiers.v1 as vf

    from aske.adapters.verifiers_env import read_reply

    trace = vf.Trace(task=vf.TraceTask(type="t", data=vf.WireTaskData()), agent=vf.AgentInfo(config=vf.AgentConfig()))
    trace.stop_condition, trace.is_timeout = stop, stop == "agent_timeout"
    if error:
        trace.errors.append(vf.Error(type="ProviderError", message=error[0], status_code=error[1]))
    reply = read_reply(trace, answered=False)
    assert (reply.finish_reason.value, reply.error, reply.text) == (finish, said, "")


def test_nothing_of_aske_imports_verifiers():
    code = (
        "import sys, aske, aske.adapters; print([m for m in sys.modules if m.split('.')[0] in ('verifiers', 'torch')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
