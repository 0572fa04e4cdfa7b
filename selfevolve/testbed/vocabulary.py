"""The testbed's tokenizer: whole words, single digits, and a token for every mark of the formats."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from selfevolve.testbed.grammar import LEXICON, SOME
from selfevolve.testbed.patterns import PATTERNS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, EOS, UNK, REPLY = "<pad>", "<eos>", "<unk>", "<reply>"
ASK, SOLVE, CHECK, JUDGE, VERSUS = "<ask>", "<solve>", "<check>", "<judge>", "<vs>"
MARKS = ("<question>", "</question>", "<think>", "</think>", "\\boxed{", "}", "INVALID", "SAME_TYPE", "DIFFERENT")
# Marks of an asker that reads solvers' results over several turns (Ask-E).
SESSION = (
    "<session>",
    "#Reasoning#",
    "#Draft#",
    "#Question#",
    "<result>",
    "<solver1>",
    "<solver2>",
    "<right>",
    "<wrong>",
    "<keep>",
    "<change>",
    "<harder>",
    "<easier>",
)
RESERVED = tuple(f"<reserved{i}>" for i in range(11))
WORK_WORDS = ("guess", "flaw", SOME, "or")
SIGNS = "+ - * / % = ; < > ( ) ? . , : x"

SPACE = "▁"  # stands for the blank before a word, as in SentencePiece
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}<reply>{{ message['content'] }}<eos>"
    "{% else %}{{ message['content'] }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<reply>{% endif %}"
)
_WORD = re.compile(r"[A-Za-z]+|[0-9]|[^\sA-Za-z0-9]")


def words() -> list[str]:
    """Return every word of the world, sorted: of the wordings, the closed classes, and of worked steps."""
    texts = [w for p in PATTERNS for w in (*p.wordings, *(t for _, t in p.flawed))]
    texts += [w for group in LEXICON.values() for w in group]
    found = {w for text in texts for w in _WORD.findall(re.sub(r"\{\w+\}", " ", text)) if not w.isdigit()}
    return sorted((found | set(WORK_WORDS) | set(SIGNS.split())) - {"|"})


def vocabulary() -> dict[str, int]:
    """Return token -> id: the special tokens first, then each word and digit, with and without a blank before it."""
    special = (PAD, EOS, UNK, REPLY, ASK, SOLVE, CHECK, JUDGE, VERSUS, *MARKS, *SESSION, *RESERVED)
    digits = [str(d) for d in range(10)]
    signs = [w for w in words() if not w.isalpha()]
    plain = [*digits, *signs, *(w for w in words() if w.isalpha())]
    everything = [*special, *(SPACE + w for w in plain), *digits, *signs]
    return {token: i for i, token in enumerate(everything)}


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer as a plain fast tokenizer of transformers, with its chat template."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel(vocabulary(), unk_token=UNK))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always", split=False),
            pre_tokenizers.Split(Regex(rf"{SPACE}?(?:[A-Za-z]+|[0-9]|[^\sA-Za-z0-9{SPACE}])|{SPACE}"), "isolated"),
        ]
    )
    tokenizer.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in (PAD, EOS, UNK)])
    visible = (REPLY, ASK, SOLVE, CHECK, JUDGE, VERSUS, *MARKS, *SESSION, *RESERVED)
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False, lstrip=True) for t in visible])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS, unk_token=UNK, padding_side="left"
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.model_max_length = 1024
    return fast
