"""The ``aske`` command. A subcommand imports what it needs, so ``--help`` loads neither torch nor the settings."""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from aske.command_line import USERS_FILES, parse
from aske.errors import AskeError

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status; a user's mistake is printed without a traceback."""
    arguments = parse(_parser(), argv)
    call: Callable[[argparse.Namespace], int] = arguments.call
    try:
        return call(arguments)
    except AskeError as error:
        print(f"aske: error: {error.message}", file=sys.stderr)
        if error.remedy:
            print(f"  -> {error.remedy}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("aske: interrupted; what was written stands, `aske resume DIR` goes on", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # the reader, such as `head`, has gone; keep the interpreter from complaining at exit
        sys.stderr.close()
        return EXIT_FAILED
    except OSError as error:
        if error.filename is None or error.errno not in USERS_FILES:
            raise
        print(f"aske: error: {error.filename}: {error.strerror}", file=sys.stderr)
        print("  -> Give a path that can be read, or written, there. What was written stands.", file=sys.stderr)
        return EXIT_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="aske",
        description="Ask-E: who writes questions that exactly one of two solvers answers?",
        epilog="A CONFIG is a YAML file or the name of a shipped one, such as testbed.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    bench = commands.add_parser("bench", help="run a benchmark", description="Run a benchmark, or go on with it.")
    _add_config(bench)
    bench.add_argument("--out", type=Path, metavar="DIR", required=True, help="its folder")
    bench.set_defaults(call=_bench)

    resume = commands.add_parser("resume", help="go on with a benchmark", description="Go on after a kill or error.")
    resume.add_argument("folder", type=Path, metavar="DIR", help="a benchmark's folder")
    resume.add_argument(
        "overrides",
        nargs="*",
        default=[],
        metavar="key=value",
        help="how hard endpoints are used, such as askers.0.limits.concurrency=8",
    )
    resume.set_defaults(call=_resume)

    check = commands.add_parser(
        "check",
        help="check a configuration and count its cost; starts nothing",
        description="Check a configuration and count sessions, replies and tokens. Starts nothing.",
    )
    _add_config(check)
    check.add_argument("--tokens-per-second", type=float, metavar="N", help="new tokens a second, for a time as well")
    check.set_defaults(call=_check)

    regrade = commands.add_parser(
        "regrade",
        help="ask another cross-check about all final questions",
        description="Ask another cross-check about all final questions and write regrade-NAME.jsonl.",
    )
    regrade.add_argument("folder", type=Path, metavar="DIR", help="a benchmark's folder")
    regrade.add_argument(
        "--cross-check", required=True, metavar="ENTRY", help="a name in the pool or of an asker, or a YAML file"
    )
    regrade.add_argument("--name", required=True, help="of the file that is written")
    regrade.set_defaults(call=_regrade)

    replay = commands.add_parser(
        "replay",
        help="score all sessions again from their records, without a call",
        description="Score all sessions again from their records, without a call. Writes nothing.",
    )
    replay.add_argument("folder", type=Path, metavar="DIR", help="a benchmark's folder")
    replay.add_argument(
        "--truncated", choices=("excluded", "wrong", "right"), default="excluded", help="how a cut-off reply counts"
    )
    replay.add_argument("--checks", type=int, metavar="N", help="use the first N cross-checks only")
    replay.set_defaults(call=_replay)

    report = commands.add_parser("report", help="write a benchmark's report", description="Write report.html and CSV.")
    report.add_argument("folder", type=Path, metavar="DIR", help="a benchmark's folder")
    report.set_defaults(call=_report)
    return parser


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="a YAML file, or the name of a shipped one such as testbed")
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="settings, such as sessions=20")


def _bench(arguments: argparse.Namespace) -> int:
    from aske.settings import load_bench

    bench = load_bench(arguments.config, arguments.overrides)
    from aske.bench import start
    from aske.progress import Display

    with Display() as display:
        run = start(bench, arguments.out, watch=display)
    _complete(arguments.out, run.written)
    return 0


def _resume(arguments: argparse.Namespace) -> int:
    from aske.bench import start
    from aske.progress import Display
    from aske.run import read_config
    from aske.settings import changed

    bench = changed(read_config(arguments.folder)[0], arguments.overrides)
    with Display() as display:
        run = start(bench, arguments.folder, watch=display)
    _complete(arguments.folder, run.written)
    return 0


def _complete(folder: Path, written: Mapping[str, int]) -> None:
    """Say what a benchmark holds; an asker none of whose sessions can be graded is told of."""
    from aske.run import SESSIONS
    from aske.store import read_rows

    labels: dict[str, Counter[str]] = {}
    reasons: dict[str, Counter[str]] = {}
    for row in read_rows(folder / SESSIONS):
        labels.setdefault(row["asker"], Counter())[row["label"]] += 1
        if row["reason"]:
            reasons.setdefault(row["asker"], Counter())[row["reason"]] += 1
    for asker, found in labels.items():
        print(f"{asker}: {', '.join(f'{label} {n}' for label, n in found.most_common())}")
        if found["ungradable"] == found.total():
            why = ", ".join(f"{reason} {n}" for reason, n in reasons[asker].most_common())
            print(f"aske: warning: no session of {asker} can be graded ({why})", file=sys.stderr)
    print(f"{folder} is complete, {sum(written.values())} rows were written now")


def _check(arguments: argparse.Namespace) -> int:
    from aske.estimate import estimate, table
    from aske.pool import check_entries
    from aske.prompts import load_pack
    from aske.settings import load_bench

    speed = arguments.tokens_per_second
    if speed is not None and not 0 < speed < math.inf:
        raise AskeError(f"--tokens-per-second is {speed}; it must be above 0")
    bench = load_bench(arguments.config, arguments.overrides)
    load_pack(bench.prompts)
    check_entries(bench)
    costs = estimate(bench)
    print(f"{len(bench.askers)} askers, {len(bench.pool.solvers)} solvers, {len(bench.pairs)} pairs\n")
    print(table(costs))
    if speed is not None:
        minutes = sum(cost.tokens for cost in costs) / speed / 60
        print(f"\nat most {minutes:.1f} minutes at {speed:g} new tokens a second")
    return 0


def _regrade(arguments: argparse.Namespace) -> int:
    from aske.progress import Display
    from aske.regrade import regrade

    with Display() as display:
        moved = regrade(arguments.folder, arguments.cross_check, arguments.name, watch=display)
    _print_moves(Counter({(str(a), str(b)): count for (a, b), count in moved.items()}))
    return 0


def _replay(arguments: argparse.Namespace) -> int:
    from aske.regrade import rescore

    if arguments.checks is not None and arguments.checks < 1:
        raise AskeError(f"--checks is {arguments.checks}; at least 1 is needed")
    found = rescore(arguments.folder, arguments.truncated, arguments.checks)
    _print_moves(Counter({(str(a), str(b)): count for (a, b), count in found.labels.items()}))
    if arguments.truncated != "excluded" or arguments.checks is not None:
        return 0
    print(f"{len(found.differing)} of {found.total} sessions differ from their records")
    for name in found.differing[:10]:
        print(f"  {name}")
    return EXIT_FAILED if found.differing else 0


def _print_moves(labels: Counter[tuple[str, str]]) -> None:
    total = sum(labels.values())
    moved = {move: count for move, count in labels.items() if move[0] != move[1]}
    print(f"{sum(moved.values())} of {total} labels differ")
    for (before, now), count in sorted(moved.items(), key=lambda item: -item[1]):
        print(f"  {count:>6}  {before} -> {now}")


def _report(arguments: argparse.Namespace) -> int:
    from aske.report import write_report

    print(write_report(arguments.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
