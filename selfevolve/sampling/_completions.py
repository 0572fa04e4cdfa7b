"""Requests to and answers of the OpenAI completion routes, as pure functions: no network here."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from selfevolve.sampling.endpoint import Api, Endpoint
from selfevolve.sampling.protocol import FinishReason, Prompt, Reply, Sampling

ROUTES = {Api.CHAT: "/chat/completions", Api.COMPLETIONS: "/completions"}
_SURROGATE = re.compile("[\ud800-\udfff]")  # half of a character, as JSON may hold it: UTF-8 cannot, nor can a record
QUOTED = 300  # characters of a server's own words in an error text


@dataclass(frozen=True)
class Answer:
    """What one response brought."""

    replies: tuple[Reply, ...]  # usable ones, at most as many as asked
    problem: str | None  # why others are missing; None: nothing is
    prompt_tokens: int = 0  # of the prompt, once; 0 where the server does not say
    completion_tokens: int = 0  # of the whole response, replies that were not usable included
    drawn: int = 0  # choices that came, usable or not, at most as many as asked


def request_body(endpoint: Endpoint, prompt: Prompt, sampling: Sampling, n: int, seed: int) -> bytes:
    """Return the request for ``n`` replies as JSON, ASCII only (a lone surrogate in a prompt is no failure)."""
    body: dict[str, Any] = dict(endpoint.extra_body)
    body["model"] = endpoint.model
    if endpoint.api is Api.CHAT:
        body["messages"] = [{"role": message.role, "content": message.content} for message in prompt]
    else:
        body["prompt"] = "\n\n".join(message.content for message in prompt)
    body |= {"n": n, "temperature": sampling.temperature, "top_p": sampling.top_p}
    body[endpoint.max_tokens_field] = sampling.max_tokens
    if sampling.top_k > 0:  # not a field of OpenAI's own servers: sent only where it is wanted
        body["top_k"] = sampling.top_k
    if endpoint.send_seed:
        body["seed"] = seed
    return json.dumps(body).encode("ascii")


def read_answer(content: bytes, api: Api, asked: int) -> Answer:
    """Read a response of status 200; whatever is wrong with it is told in ``problem``, never raised."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return Answer((), f"broken JSON: {quote(content)}")
    if not isinstance(body, dict):
        return Answer((), f"a JSON object was expected, {type(body).__name__} came: {quote(content)}")
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        words = "empty choices" if choices == [] else "no choices"
        return Answer((), f"{words}: {quote(content)}")
    usage = body.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    prompt_tokens, total = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    counts = completion_counts(choices, total)
    replies: list[Reply] = []
    problem = f"{len(choices)} choices came, {asked} were asked for" if len(choices) < asked else None
    for choice, tokens in zip(_in_order(choices), counts, strict=True):
        reply = _read_choice(choice, api, prompt_tokens, tokens)
        if isinstance(reply, str):
            problem = f"{reply}: {quote(json.dumps(choice).encode())}"
        else:
            replies.append(reply)
    return Answer(tuple(replies[:asked]), problem, prompt_tokens, max(total, sum(counts)), min(len(choices), asked))


def completion_counts(choices: list[Any], total: int) -> list[int]:
    """Return the completion tokens of each choice, in the order of `_in_order`.

    A choice's own count is taken where the server gives one for every choice: its list ``token_ids`` (vLLM with
    ``return_token_ids``), or the entries of its log-probabilities. Else ``usage.completion_tokens``, which is of the
    whole response, is split evenly and the first ones get the remainder: exact for one choice and in the sum.
    """
    own = [_own_count(choice) for choice in _in_order(choices)]
    known = [count for count in own if count is not None]
    if len(known) == len(own):
        return known
    share, rest = divmod(total, len(choices))
    return [share + (i < rest) for i in range(len(choices))]


def quote(content: bytes) -> str:
    """Return the beginning of a server's words, on one line."""
    text = " ".join(content[: 4 * QUOTED].decode("utf-8", "replace").split())
    return text if len(text) <= QUOTED else text[:QUOTED] + "..."


def _in_order(choices: list[Any]) -> list[Any]:
    """Return the choices by their index, where all have one and no two the same; else as they came."""
    by_index = {choice["index"]: choice for choice in choices if isinstance(choice, dict) and _is_index(choice)}
    if len(by_index) == len(choices):
        return [by_index[index] for index in sorted(by_index)]
    return choices


def _is_index(choice: dict[str, Any]) -> bool:
    return type(choice.get("index")) is int


def _count(value: Any) -> int:
    return value if type(value) is int and value >= 0 else 0


def _own_count(choice: Any) -> int | None:
    if not isinstance(choice, dict):
        return None
    if isinstance(choice.get("token_ids"), list):
        return len(choice["token_ids"])
    logprobs = choice.get("logprobs")
    if isinstance(logprobs, dict):
        for name in ("content", "tokens"):  # chat, completions
            if isinstance(logprobs.get(name), list):
                return len(logprobs[name])
    return None


def _read_choice(choice: Any, api: Api, prompt_tokens: int, tokens: int) -> Reply | str:
    """Return the reply, or what is wrong with the choice."""
    holder = choice.get("message") if api is Api.CHAT and isinstance(choice, dict) else choice
    if not isinstance(holder, dict):
        return "a choice without a message"
    text = holder.get("content" if api is Api.CHAT else "text")
    reason = choice.get("finish_reason")
    if not isinstance(text, str | None) or not isinstance(reason, str | None):
        return "a choice with a wrong type"
    text = text and _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)
    if reason == "length":  # a model that was cut off while thinking has no content yet: cut off all the same
        return Reply(text or "", FinishReason.LENGTH, prompt_tokens, tokens)
    if reason != "stop":
        name = "null" if reason is None else reason[:QUOTED]
        return Reply(text or "", FinishReason.ERROR, prompt_tokens, tokens, f"finish reason {name}")
    if text is None:
        return "null content"
    return Reply(text, FinishReason.STOP, prompt_tokens, tokens)
