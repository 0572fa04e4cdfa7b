"""The report of a benchmark: one HTML page, three CSV files and a summary, made from the bench folder alone."""

from __future__ import annotations

from pathlib import Path

from aske._folder import read_bench
from aske.analysis import analyse_bench
from aske.report._page import page
from aske.report._tables import write_tables
from aske.report._write import write_json, write_text
from aske.statistics.clusters import DRAWS

__all__ = ["EMBEDDED", "write_report"]

EMBEDDED = 400  # sessions whose transcripts are embedded in the page


def write_report(folder: str | Path, *, draws: int = DRAWS, seed: int = 0, embedded: int = EMBEDDED) -> Path:
    """Write report.html, cells.csv, sessions.csv, askers.csv and summary.json into a bench folder.

    The folder may belong to a benchmark that has not ended, and any control may be missing. The page needs no network.

    Args:
        folder: what `aske bench` wrote.
        draws: bootstrap draws of the intervals.
        seed: seed of the draws.
        embedded: sessions whose transcripts the page holds, failures first; the rest are in sessions.csv.

    Returns:
        The path of report.html.

    Raises:
        AskeError: it is no bench folder.
    """
    bench = read_bench(folder)
    found = analyse_bench(bench, draws=draws, seed=seed)
    write_json(bench.path / "summary.json", found.to_json())
    write_tables(bench, found)
    return write_text(bench.path / "report.html", page(bench, found, embedded))
