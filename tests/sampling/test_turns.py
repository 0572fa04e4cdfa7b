"""Glue between a sampled reply and the next: for a template without a closing mark, for ChatML, for plain text."""

from __future__ import annotations

from typing import Any

import pytest

from selfevolve.sampling import Message, user
from selfevolve.sampling.transformers_sampler import Formatter
from selfevolve.sampling.turns import TurnFormatter
from tests.chat_tokenizer import CHATML, chat_tokenizer


def conversation(*contents: str) -> tuple[Message, ...]:
    roles = ("user", "assistant")
    return (Message("system", "Be brief."), *(Message(roles[i % 2], text) for i, text in enumerate(contents)))


def play(tokenizer: Any, replies: list[str], said: list[str], end: str | None) -> tuple[list[int], list[list[int]]]:
    """Return all ids, and the prompt of each turn after the first; replies are encoded and end with ``end``."""
    formatter = Formatter(tokenizer)
    turns = TurnFormatter(formatter, [tokenizer.convert_tokens_to_ids(e) for e in ("<|im_end|>", "<|endoftext|>")])
    ids = formatter.ids([conversation("What is 2 + 3?")])[0]
    prompts = []
    for reply, content in zip(replies, said, strict=True):
        sampled = tokenizer(reply, add_special_tokens=False)["input_ids"]
        if end is not None:
            sampled = [*sampled, tokenizer.convert_tokens_to_ids(end)]
        ids = [*ids, *sampled, *turns.glue(sampled, content)]
        prompts.append(ids)
    return ids, prompts


REPLIES, SAID = ["It is 5.", " 12, I think\n"], ["And 3 * 4?", "  Sure?\n\nThink again."]


def test_chatml_is_the_templates_own_rendering_turn_by_turn() -> None:
    tokenizer = chat_tokenizer(CHATML)
    _, prompts = play(tokenizer, REPLIES, SAID, "<|im_end|>")
    for turn, ids in enumerate(prompts, 1):
        contents = ["What is 2 + 3?"]
        for reply, content in zip(REPLIES[:turn], SAID[:turn], strict=True):
            contents += [reply, content]
        rendered = Formatter(tokenizer).text(conversation(*contents))
        assert tokenizer.decode(ids) == rendered
        assert ids == tokenizer(rendered, add_special_tokens=False)["input_ids"]
        assert rendered.endswith("<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("end", "between"), [(None, "5.<|im_end|>\n<|im_start|>user\nAnd"), ("<|endoftext|>", "<|endoftext|><|im_end|>\n")]
)
def test_a_reply_that_lacks_the_closing_mark_gets_it(end: str | None, between: str) -> None:
    tokenizer = chat_tokenizer(CHATML)
    ids, _ = play(tokenizer, REPLIES[:1], SAID[:1], end)
    text = tokenizer.decode(ids)
    assert between in text and text.count("<|im_end|>") == 4  # system, user, reply, user


def test_the_closing_mark_is_looked_for_before_the_content_only() -> None:
    tokenizer = chat_tokenizer("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]")
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    turns = TurnFormatter(Formatter(tokenizer), [end])
    assert turns.closing is None
    assert tokenizer.decode(turns.glue([7, end], "a<|im_end|>b")) == "[user]a<|im_end|>b[assistant]"


def test_blanks_before_the_closing_mark_go_with_it() -> None:
    # Llama 2 writes a blank between the reply and its end token
    template = (
        "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content | trim }} [/INST]"
        "{% else %} {{ m.content | trim }} <|im_end|>{% endif %}{% endfor %}"
    )
    tokenizer = chat_tokenizer(template)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    turns = TurnFormatter(Formatter(tokenizer), [end])
    assert tokenizer.decode(turns.glue([7, end], " more ")) == "[INST] more [/INST]"
    assert tokenizer.decode(turns.glue([7], " more ")) == " <|im_end|>[INST] more [/INST]"


def test_the_generation_prompt_follows_the_template_options() -> None:
    template = CHATML + "{% if think is defined and not think %}<think></think>{% endif %}"
    tokenizer = chat_tokenizer(template)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    quiet = TurnFormatter(Formatter(tokenizer, {"think": False}), [end]).glue([end], "So?")
    assert tokenizer.decode(quiet) == "\n<|im_start|>user\nSo?<|im_end|>\n<|im_start|>assistant\n<think></think>"


def test_plain_format_puts_the_content_between_blank_lines() -> None:
    tokenizer = chat_tokenizer(None)
    end = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    turns = TurnFormatter(Formatter(tokenizer), [end])
    assert tokenizer.decode(turns.glue([7, end], "And 3 * 4?")) == "\n\nAnd 3 * 4?\n\n"
    assert tokenizer.decode(turns.glue([7], "And 3 * 4?")) == "\n\nAnd 3 * 4?\n\n"


def test_the_testbeds_template() -> None:
    from selfevolve.testbed.vocabulary import build_tokenizer

    tokenizer = build_tokenizer()
    turns = TurnFormatter(Formatter(tokenizer), [1])
    opening = Formatter(tokenizer).ids([user("<solve> What is 3 + 4 ?")])[0]
    sampled = [*tokenizer("\\boxed{ 7 }")["input_ids"], 1]
    ids = opening + sampled + turns.glue(sampled, "<check> What is 5 + 1 ?")
    assert (
        ids == tokenizer("<solve> What is 3 + 4 ?<reply>\\boxed{ 7 }<eos><check> What is 5 + 1 ?<reply>")["input_ids"]
    )


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}", "assistant's turn"),
        ("{{ messages[0].content }}{{ messages[1].content if messages | length > 1 }}", "user's turn"),
    ],
)
def test_a_template_that_drops_turns_is_refused(template: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TurnFormatter(Formatter(chat_tokenizer(template)), [1])
