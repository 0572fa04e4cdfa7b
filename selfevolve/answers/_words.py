"""Word lists as text, so that they stay readable in the source."""

from __future__ import annotations


def words(text: str) -> list[str]:
    """Return the words of ``text``, in order."""
    return text.split()
