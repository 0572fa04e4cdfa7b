"""Write the reports of one run."""

from __future__ import annotations

from pathlib import Path

from selfevolve.report.digest import digest_run
from selfevolve.report.html import write_whole
from selfevolve.report.load import load_run
from selfevolve.report.markdown import run_markdown
from selfevolve.report.run_page import run_page


def write_report(run_path: str | Path) -> tuple[Path, Path]:
    """Write report.html and report.md into a run folder, from what lies in it, and return their paths.

    The folder may belong to a run that has not ended, or to one without a referee. The HTML file needs no network.

    Raises:
        UserError: if ``run_path`` is no run folder.
    """
    run = load_run(run_path)
    digest = digest_run(run)
    page = write_whole(run.path / "report.html", run_page(run, digest))
    text = write_whole(run.path / "report.md", run_markdown(run, digest))
    return page, text
