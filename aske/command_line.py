"""What the commands ``aske`` and ``selfevolve`` share: where overrides may stand, and whose mistake an OSError is."""

from __future__ import annotations

import argparse
import errno
from collections.abc import Sequence

# of a system call on a path: what is there, or may be done there, is the user's to mend
USERS_FILES = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST),
    *(errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG, errno.ELOOP),
)


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments; ``key=value`` may stand behind options where the command takes overrides.

    argparse by itself ends a list of positional arguments at the first option.
    """
    arguments, rest = parser.parse_known_args(argv)
    late = [text for text in rest if "=" in text and not text.startswith("-")]
    if late != rest or (late and not hasattr(arguments, "overrides")):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if late:
        arguments.overrides = [*arguments.overrides, *late]
    return arguments
