"""An OpenAI-compatible server for tests, with faults: in a thread, or in a process of its own.

``with FakeServer(script) as server: Endpoint(server.urls, server.model)``. A script is ``(request body, index of the
sample) -> str`` (or a whole choice); a process is given it as ``"module:function"``. Token counts are counts of blank-
separated words, and a reply longer than ``max_tokens`` words is cut there.

Which fault a request meets depends on (seed, body, how often this body came before) and on nothing else, so a run does
not depend on the order of threads. ``Faults(schedule=...)`` gives the first faults by hand instead.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import itertools
import json
import os
import random
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

Script = Callable[[dict[str, Any], int], "str | dict[str, Any]"]


class Fault(StrEnum):
    """What may go wrong with a request."""

    TOO_MANY = "429"  # with Retry-After
    SERVER_ERROR = "500"
    UNAVAILABLE = "503"  # without Retry-After
    HANG = "hang"  # nothing is sent for hang_seconds, then the connection closes
    DROP = "drop"  # the connection closes at once
    CUT_OFF = "cut_off"  # the body stops in the middle, and the connection closes
    CUT_CHUNKED = "cut_chunked"  # the same without a length in the header
    BROKEN_JSON = "broken_json"  # whole, but no JSON
    WRONG_TYPES = "wrong_types"  # JSON of another shape
    EMPTY_CHOICES = "empty_choices"
    N_IGNORED = "n_ignored"  # one choice, whatever n was
    N_EXCEEDED = "n_exceeded"  # two choices too many
    NULL_CONTENT = "null_content"
    # not among the transient ones: no retry mends these
    CONTENT_FILTER = "content_filter"  # as finish reason
    NULL_REASON = "null_reason"  # no finish reason
    BAD_REQUEST = "400"
    DRIP = "drip"  # a byte now and then, never silent for long


TRANSIENT = tuple(Fault)[:13]


@dataclass(frozen=True)
class Faults:
    """How often requests fail, and how."""

    rate: float = 0.0
    kinds: tuple[Fault, ...] = TRANSIENT
    seed: int = 0
    retry_after: str = "0.005"
    hang_seconds: float = 1.0
    schedule: tuple[Fault | None, ...] = ()  # faults of the first requests, in order of arrival; None: none

    def of(self, body: bytes, times: int, number: int) -> Fault | None:
        """Return the fault of a request: this body came ``times`` before, and ``number`` requests in all."""
        if number < len(self.schedule):
            return self.schedule[number]
        if not self.rate:
            return None
        rng = random.Random(f"{self.seed}/{times}/".encode() + body)
        return rng.choice(self.kinds) if rng.random() < self.rate else None


def echo(body: dict[str, Any], index: int) -> str:
    """Answer with the prompt's last words and the draw, which is seed + index, as in vLLM."""
    last = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
    return f"{last} draw {body.get('seed', 0) + index}"


@dataclass
class Settings:
    """What a server is like."""

    models: tuple[str, ...] = ("fake-model",)
    key: str | None = None  # where set, requests need it
    delay: float = 0.0  # seconds before each answer
    usage: bool = True
    token_ids: bool = False  # each choice carries its own count
    never_n: bool = False  # n is ignored in every request


class _Core:
    """Makes the responses; one event loop uses it, so it needs no lock."""

    def __init__(self, script: Script, faults: Faults, settings: Settings) -> None:
        self.script, self.faults, self.settings = script, faults, settings
        self.seen: Counter[bytes] = Counter()
        self.stats: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []

    def respond(self, path: str, key: str | None, content: bytes) -> tuple[int, Any, Fault | None]:
        """Return (status, JSON body, fault)."""
        if path.endswith("/stats"):
            return 200, dict(self.stats), None
        self.keys.append(key)
        if self.settings.key and key != f"Bearer {self.settings.key}":
            return 401, {"error": {"message": f"Incorrect API key provided: {key}"}}, None
        if "elsewhere" in path:
            return 404, {"error": {"message": f"no route {path}"}}, None
        if path.endswith("/models"):
            return 200, {"object": "list", "data": [{"id": m, "object": "model"} for m in self.settings.models]}, None
        if not path.endswith("/completions"):
            return 404, {"error": {"message": f"no route {path}"}}, None
        body = json.loads(content)
        self.bodies.append(body)
        if body["model"] not in self.settings.models:
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}, None
        fault = self.faults.of(content, self.seen[content], self.stats["requests"])
        self.seen[content] += 1
        self.stats["requests"] += 1
        if fault:
            self.stats[fault.value] += 1
        return 200, self.completion(body, fault, chat=path.endswith("/chat/completions")), fault

    def completion(self, body: dict[str, Any], fault: Fault | None, chat: bool) -> dict[str, Any]:
        """Return the completion, with the faults that live in its content."""
        n = body.get("n", 1)
        n = 1 if fault is Fault.N_IGNORED or self.settings.never_n else n + 2 * (fault is Fault.N_EXCEEDED)
        choices = [self.choice(body, index, fault, chat) for index in range(n)]
        tokens = sum(choice.pop("tokens") for choice in choices)
        prompt = " ".join(m["content"] for m in body["messages"]) if chat else body["prompt"]
        answer: dict[str, Any] = {"id": "x", "object": "completion", "model": body["model"], "choices": choices}
        if fault is Fault.EMPTY_CHOICES:
            answer["choices"] = []
        if fault is Fault.WRONG_TYPES:
            answer["choices"] = [{"index": 0, "message": "text", "finish_reason": 7}]
        if self.settings.usage:
            answer["usage"] = {"prompt_tokens": len(prompt.split()), "completion_tokens": tokens}
        return answer

    def choice(self, body: dict[str, Any], index: int, fault: Fault | None, chat: bool) -> dict[str, Any]:
        written = self.script(body, index)
        choice = dict(written) if isinstance(written, dict) else {"text": written}
        text: str | None = choice.pop("text", "")
        words = (text or "").split()
        reason = choice.pop("finish_reason", "stop")
        if len(words) > body.get("max_tokens", 10**9):
            words = words[: body["max_tokens"]]
            text, reason = " ".join(words), "length"
        if fault is Fault.NULL_CONTENT:
            text = None
        if fault in (Fault.CONTENT_FILTER, Fault.NULL_REASON):
            reason = "content_filter" if fault is Fault.CONTENT_FILTER else None
        choice |= {"index": index, "finish_reason": reason, "tokens": len(words)}
        if self.settings.token_ids:
            choice["token_ids"] = list(range(len(words)))
        return choice | ({"message": {"role": "assistant", "content": text}} if chat else {"text": text})


class _Connection(asyncio.Protocol):
    """One connection: requests with a Content-Length, kept alive."""

    def __init__(self, core: _Core) -> None:
        self.core, self.buffer = core, b""
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while True:
            head, mark, rest = self.buffer.partition(b"\r\n\r\n")
            if not mark:
                return
            lines = head.decode("latin-1").split("\r\n")
            headers = {name.strip().lower(): value.strip() for name, _, value in (x.partition(":") for x in lines[1:])}
            length = int(headers.get("content-length", 0))
            if len(rest) < length:
                return
            self.buffer = rest[length:]
            answer = self.core.respond(lines[0].split()[1], headers.get("authorization"), rest[:length])
            if self.core.settings.delay:
                asyncio.get_running_loop().call_later(self.core.settings.delay, self.write, *answer)
            else:
                self.write(*answer)

    def write(self, status: int, body: Any, fault: Fault | None) -> None:
        """Send the answer, or what the fault leaves of it."""
        content = json.dumps(body).encode()
        loop = asyncio.get_running_loop()
        if fault is Fault.DROP:
            return self.transport.abort()
        if fault is Fault.HANG:
            loop.call_later(self.core.faults.hang_seconds, self.transport.abort)
            return None
        extra = ""
        if fault is Fault.TOO_MANY:
            status, content, extra = 429, b"slow down", f"Retry-After: {self.core.faults.retry_after}\r\n"
        elif fault in (Fault.SERVER_ERROR, Fault.UNAVAILABLE, Fault.BAD_REQUEST):
            status, content = int(fault.value), b"it went wrong"
        elif fault is Fault.BROKEN_JSON:
            content = content[: len(content) // 2]
        length = "" if fault is Fault.CUT_CHUNKED else f"Content-Length: {len(content)}\r\n"
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{length}{extra}\r\n".encode()
        if fault in (Fault.CUT_OFF, Fault.CUT_CHUNKED):
            self.transport.write(head + content[: len(content) // 2])
            return self.transport.close()
        if fault is Fault.DRIP:
            self.transport.write(head)
            return self.drip(content)
        return self.transport.write(head + content)

    def drip(self, content: bytes) -> None:
        if content and not self.transport.is_closing():
            self.transport.write(content[:1])
            asyncio.get_running_loop().call_later(0.02, self.drip, content[1:])


async def _serve(core: _Core, told: Callable[[int], None], stop: asyncio.Event) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(core), "127.0.0.1", 0, backlog=512)
    told(server.sockets[0].getsockname()[1])
    await stop.wait()
    server.close()


_numbers = itertools.count()


class FakeServer:
    """The server, as a context manager; ``process=True`` gives it a process of its own."""

    def __init__(
        self,
        script: Script | str = echo,
        faults: Faults | None = None,
        *,
        process: bool = False,
        **settings: Any,
    ) -> None:
        self.settings = Settings(**settings)
        self.faults = faults or Faults()
        self.script, self.process = script, process
        self.model = self.settings.models[0]
        self.port = 0
        self.number = next(_numbers)  # part of the address, so that no two servers of a test run share one

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.number}/v1"

    @property
    def urls(self) -> tuple[str, ...]:
        return (self.url,)

    @property
    def stats(self) -> dict[str, int]:
        """Requests and faults so far, by name."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.url}/stats", timeout=10) as response:
            found: dict[str, int] = json.load(response)
        return found

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The requests' bodies, in order of arrival (thread only)."""
        return self.core.bodies

    def __enter__(self) -> FakeServer:
        return self._start_process() if self.process else self._start_thread()

    def _start_thread(self) -> FakeServer:
        script = _load(self.script) if isinstance(self.script, str) else self.script
        self.core = _Core(script, self.faults, self.settings)
        ready = threading.Event()

        def told(port: int) -> None:
            self.port = port
            ready.set()

        async def main() -> None:
            self.loop, self.stop = asyncio.get_running_loop(), asyncio.Event()
            await _serve(self.core, told, self.stop)

        self.thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
        self.thread.start()
        assert ready.wait(10)
        return self

    def _start_process(self) -> FakeServer:
        assert isinstance(self.script, str), "a process is given its script as 'module:function'"
        what = json.dumps({"script": self.script, "faults": asdict(self.faults), "settings": asdict(self.settings)})
        root = Path(__file__).resolve().parents[2]
        path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.child = subprocess.Popen(
            [sys.executable, __file__, what],
            stdin=subprocess.PIPE,  # the child ends when this pipe closes, however we end
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
            env=os.environ | {"PYTHONPATH": path},
        )
        assert self.child.stdout is not None
        self.port = int(self.child.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        if self.process:
            self.child.terminate()
            self.child.wait(10)
            for pipe in (self.child.stdin, self.child.stdout):
                assert pipe is not None
                pipe.close()
        else:
            self.loop.call_soon_threadsafe(self.stop.set)
            self.thread.join(10)


def _load(name: str) -> Script:
    module, _, function = name.partition(":")
    script: Script = getattr(importlib.import_module(module), function)
    return script


def main() -> None:
    """Serve until the standard input closes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what")
    what = json.loads(parser.parse_args().what)
    lists = {name: tuple(what["faults"][name]) for name in ("kinds", "schedule")}
    lists = {name: tuple(None if f is None else Fault(f) for f in values) for name, values in lists.items()}
    faults = Faults(**(what["faults"] | lists))
    settings = Settings(**(what["settings"] | {"models": tuple(what["settings"]["models"])}))
    core = _Core(_load(what["script"]), faults, settings)

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def wait() -> None:
            sys.stdin.read()
            loop.call_soon_threadsafe(stop.set)

        threading.Thread(target=wait, daemon=True).start()
        await _serve(core, lambda port: print(port, flush=True), stop)

    asyncio.run(serve())


if __name__ == "__main__":
    main()
