"""A server of the tests' own, as a process: lists its model and hands requests on to the tests' engine.

    python front.py --engine http://127.0.0.1:PORT --model NAME --host H --port P [--faults FOLDER]

FOLDER tells when it fails: a file ``die-at-start-K`` ends start K (from 1) at once, ``die-after-K`` holds the number of
completions after which start K ends without an answer, ``silent`` keeps it from ever listening, ``deaf`` from saying
which models it has, ``stubborn`` from ending when asked to.
It loads no model, so that it starts in a moment. Standard library only.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def start_number(folder: Path) -> int:
    """Return which start of the test this is, also where several start at once."""
    for number in itertools.count(1):
        try:
            (folder / f"start-{number}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return number
    raise AssertionError


class Front:
    """What the process knows: its model, its engine, and how it shall fail."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.model, self.engine = arguments.model, arguments.engine
        self.faults: Path | None = arguments.faults
        self.lock = threading.Lock()
        self.answered = 0
        self.dies_after: int | None = None
        if self.faults is not None:
            number = start_number(self.faults)
            with (self.faults / "pids").open("a") as pids:
                pids.write(f"{os.getpid()}\n")
            (self.faults / "environment.json").write_text(json.dumps(dict(os.environ)))
            if (self.faults / f"die-at-start-{number}").is_file():
                sys.exit("a reason to die: no such device")
            if (self.faults / "stubborn").is_file():
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            after = self.faults / f"die-after-{number}"
            self.dies_after = int(after.read_text()) if after.is_file() else None

    def deaf(self) -> bool:
        return self.faults is not None and (self.faults / "deaf").is_file()

    def complete(self, path: str, body: bytes) -> tuple[int, bytes]:
        with self.lock:
            if self.dies_after is not None and self.answered >= self.dies_after:
                os._exit(9)
            self.answered += 1
        request = urllib.request.Request(self.engine + path, body, {"X-Front": str(os.getpid())})
        try:
            with OPENER.open(request, timeout=300) as response:
                return 200, response.read()
        except OSError as error:
            return 500, str(error).encode()


def handler(front: Front) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            while front.deaf():
                time.sleep(0.05)
            self.answer(200, json.dumps({"object": "list", "data": [{"id": front.model}]}).encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(*front.complete(self.path, body))

        def answer(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--faults", type=Path)
    front = Front(parser.parse_args())
    print(f"front of {front.model}", flush=True)
    while front.faults is not None and (front.faults / "silent").is_file():
        time.sleep(0.05)
    arguments = parser.parse_args()
    ThreadingHTTPServer.allow_reuse_address = True
    ThreadingHTTPServer.request_queue_size = 256
    ThreadingHTTPServer((arguments.host, arguments.port), handler(front)).serve_forever()


if __name__ == "__main__":
    main()
