"""The engine behind the tests' servers: one thread of the test process answers completions with real models.

It loads each model that a request names, and decodes what waits together. Sample i of a request is drawn with the
request's seed + i, as in vLLM, so that a reply depends neither on batches nor on how samples were spread over requests.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, SimpleQueue
from typing import Any

from selfevolve.sampling import Message, Sampling

Load = Callable[[str], Any]  # a folder -> a TransformersSampler
GATHER = 0.01  # seconds to wait for further requests


class _Waiting:
    """A request, and its answer once it is there."""

    def __init__(self, body: dict[str, Any], chat: bool) -> None:
        self.body, self.chat = body, chat
        self.done = threading.Event()
        self.answer: dict[str, Any] = {}

    @property
    def group(self) -> tuple[Any, ...]:
        """What requests that are decoded together have in common."""
        b = self.body
        return b["model"], b["temperature"], b["top_p"], b.get("top_k", 0), b["max_tokens"]


class Engine:
    """``with Engine(load) as engine: engine.url``."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.models: dict[str, Any] = {}
        self.bodies: list[dict[str, Any]] = []  # requests, as they came
        self.routes: list[str] = []
        self.fronts: Counter[str] = Counter()  # requests by the server that handed them on
        self.waiting: SimpleQueue[_Waiting | None] = SimpleQueue()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> Engine:
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                engine.routes.append(self.path)
                engine.bodies.append(body)
                engine.fronts[self.headers["X-Front"]] += 1
                one = _Waiting(body, self.path.endswith("/chat/completions"))
                engine.waiting.put(one)
                one.done.wait()
                content = json.dumps(one.answer).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        ThreadingHTTPServer.request_queue_size = 256
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.threads = [
            threading.Thread(target=self.server.serve_forever, daemon=True),
            threading.Thread(target=self.work, daemon=True),
        ]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.waiting.put(None)

    def work(self) -> None:
        while (one := self.waiting.get()) is not None:
            time.sleep(GATHER)
            batch = [one]
            while True:
                try:
                    more = self.waiting.get_nowait()
                except Empty:
                    break
                if more is None:
                    return
                batch.append(more)
            groups: dict[tuple[Any, ...], list[_Waiting]] = {}
            for waiting in batch:
                groups.setdefault(waiting.group, []).append(waiting)
            for group, members in groups.items():
                self.decode(group, members)

    def decode(self, group: tuple[Any, ...], members: list[_Waiting]) -> None:
        model, temperature, top_p, top_k, limit = group
        if model not in self.models:
            self.models[model] = self.load(model)
        sampler = self.models[model]
        prompts, keys = [], []
        for one in members:
            turns = one.body["messages"] if one.chat else [{"role": "user", "content": one.body["prompt"]}]
            prompts += [tuple(Message(t["role"], t["content"]) for t in turns)] * one.body["n"]
            keys += [one.body["seed"] + i for i in range(one.body["n"])]
        sampling = Sampling(1, temperature, top_p, top_k, limit)
        replies = iter([drawn[0] for drawn in sampler.sample_keyed(prompts, sampling, keys)])
        for one in members:
            mine = [next(replies) for _ in range(one.body["n"])]
            choices = []
            for i, reply in enumerate(mine):
                text = {"message": {"content": reply.text}} if one.chat else {"text": reply.text}
                ids = {"token_ids": [0] * reply.completion_tokens}
                choices.append({"index": i, "finish_reason": reply.finish_reason.value, **text, **ids})
            usage = {
                "prompt_tokens": mine[0].prompt_tokens,
                "completion_tokens": sum(r.completion_tokens for r in mine),
            }
            one.answer = {"model": model, "choices": choices, "usage": usage}
            one.done.set()
