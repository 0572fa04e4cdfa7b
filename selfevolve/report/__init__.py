"""Reports of runs: a page and a Markdown file for one run, a page that compares several, a table for the terminal.

Everything is rebuilt from run folders alone, also of runs that have not ended. What a run did not measure is shown as
"not measured", never as 0.
"""

from __future__ import annotations

from selfevolve.report.compare_page import write_comparison
from selfevolve.report.table import round_table
from selfevolve.report.write import write_report

__all__ = ["round_table", "write_comparison", "write_report"]
