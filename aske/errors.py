"""What a user of `aske` can get wrong."""

from __future__ import annotations


class AskeError(ValueError):
    """A mistake in what was given; the command prints it without a traceback."""

    def __init__(self, message: str, remedy: str | None = None) -> None:
        """Keep what went wrong and what to do about it."""
        super().__init__(message if remedy is None else f"{message}\n  {remedy}")
        self.message = message
        self.remedy = remedy
