"""``python -m selfevolve`` is the ``selfevolve`` command."""

import sys

from selfevolve.cli import main

sys.exit(main())
