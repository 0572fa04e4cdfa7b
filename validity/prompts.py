r"""The standard validity-aware solving prompt (structure of R-Quest, prompt A.5; the sentences are ours)."""

from __future__ import annotations

from selfevolve.sampling import Prompt, user

PLACEHOLDER = "{question}"

VALIDITY_TEMPLATE = r"""Question: {question}

Work through this problem with care, one step after another. As you go, keep asking whether the question is sound: are \
its terms well defined, do its conditions agree with each other, and can it be solved as it stands?

- If the question is sound, solve it as usual.
- If your work shows that the question itself is flawed (information is missing, conditions contradict each other, it \
can be read in several ways, nothing can satisfy it, its statement is garbled, or no answer could be marked as right \
objectively), then your final answer is the word INVALID.

INVALID is a statement about the question, never about you. A problem that is hard, an answer you doubt, or a solution \
you could not finish is no reason to use it.

Begin with your reasoning, between <think> and </think>. After it, give exactly one final answer inside \boxed{}: the \
mathematical answer if the question is sound, or INVALID if it is flawed."""


def validity_prompt(question: str, template: str = VALIDITY_TEMPLATE) -> Prompt:
    """Return the prompt that asks for a solution or a rejection of one question.

    Args:
        question: The question's text, put in as it is (braces and backslashes are safe).
        template: A text that holds ``{question}`` exactly once.

    Raises:
        ValueError: The template does not hold ``{question}`` exactly once.
    """
    found = template.count(PLACEHOLDER)
    if found != 1:
        raise ValueError(f"the template holds {PLACEHOLDER} {found} times; write it exactly once")
    return user(template.replace(PLACEHOLDER, question))
