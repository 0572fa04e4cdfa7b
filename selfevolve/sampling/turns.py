"""Later turns of a conversation as token ids, joined to what was sampled (ground floor: imports nothing of ours).

A conversation is trained on as the ids that were sampled. Rendering it anew would not do: text does not lead back to
the same ids, and templates rewrite earlier turns (they drop thinking, trim blanks). So a later turn is made as *glue*:
the ids between the end of a sampled reply and the beginning of the next one, and

    next prompt = prompt + sampled ids + glue

holds id for id.
"""

from __future__ import annotations

from collections.abc import Sequence

from selfevolve.sampling.protocol import Message
from selfevolve.sampling.transformers_sampler import Formatter, PromptFormat

_REPLY, _CONTENT = "selfevolve-reply-here", "selfevolve-content-here"  # found again in what a template renders


class TurnFormatter:
    """Makes the ids between a sampled reply and the next one, for any chat template and for plain text."""

    def __init__(self, formatter: Formatter, end_ids: Sequence[int]) -> None:
        """Find out how the template closes a reply.

        Args:
            formatter: the format of the opening prompts.
            end_ids: every id that ends a reply.

        Raises:
            ValueError: the template does not render a conversation of several turns word for word.
        """
        self.formatter = formatter
        self.closing: int | None = None  # the end id that the template writes after a reply, if it writes one
        if formatter.format is PromptFormat.CHAT:
            between, found, _ = self._after_reply(_CONTENT).partition(_CONTENT)
            if not found:
                raise ValueError(
                    "the chat template leaves out a user's turn after a reply; conversations need a template that "
                    "renders every turn, set tokenizer.chat_template to one"
                )
            self.closing = next((i for i in self._encode(between) if i in set(end_ids)), None)

    def glue(self, sampled: Sequence[int], content: str) -> list[int]:
        """Return the ids from the end of a reply to the beginning of the next one.

        The mark that closes a reply is part of them only where ``sampled`` does not end with it (a reply that was cut
        off, or one that ended with another end token). In plain format the content stands between blank lines.

        Args:
            sampled: the ids of the reply.
            content: what the user's turn says.
        """
        if self.formatter.format is PromptFormat.PLAIN:
            return self._encode(f"\n\n{content}\n\n")
        ids = self._encode(self._after_reply(content))
        closed = self.closing is not None and len(sampled) > 0 and sampled[-1] == self.closing
        return ids[ids.index(self.closing) + 1 :] if closed and self.closing is not None else ids

    def _after_reply(self, content: str) -> str:
        """Return what the template renders after the text of a reply that a user's turn follows."""
        turns = (Message("user", "-"), Message("assistant", _REPLY), Message("user", content))
        _, found, tail = self.formatter.text(turns).partition(_REPLY)
        if not found:
            raise ValueError(
                "the chat template leaves out or rewrites an assistant's turn; conversations need a template that "
                "renders every turn, set tokenizer.chat_template to one"
            )
        return tail

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self.formatter.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids
