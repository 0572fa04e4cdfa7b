"""Errors that a user can mend: each message says what was met, what was expected and what to do."""

from __future__ import annotations


class UserError(ValueError):
    """A mistake or a circumstance that the user can mend; the command line prints it without a traceback.

    Args:
        message: the value met and the value expected, in one sentence or two.
        remedy: what to do about it; "" when the message says it all.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        """Keep the two parts apart, so that the command line can print the remedy on its own line."""
        super().__init__(f"{message}\n{remedy}" if remedy else message)
        self.message = message
        self.remedy = remedy


class ConfigError(UserError):
    """A recipe, or an override of it, that does not fit the schema."""


class RunFolderError(UserError):
    """A run folder that cannot be used as asked: busy, damaged, incomplete, or made under another config."""


class RunBusyError(RunFolderError):
    """Another live process holds the run folder."""


class ConfigChangedError(RunFolderError):
    """The config on resume is not the one that the run folder was made with."""


class DamagedFileError(RunFolderError):
    """A file of a completed stage is missing, empty, shorter than recorded, or torn in the middle."""


class DiskFullError(RunFolderError):
    """The disk, or the user's quota on it, is full."""


class CollapseError(UserError):
    """There is nothing to learn: no admitted question, or no spread in the rewards."""
