"""The ``selfevolve`` command. A subcommand imports what it needs, so ``--help`` loads neither torch nor the recipes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aske.command_line import USERS_FILES, parse
from selfevolve import __version__
from selfevolve.errors import UserError

if TYPE_CHECKING:
    from selfevolve.config import Recipe

EXIT_FAILED = 1
EXIT_USAGE = 2  # argparse's own
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status; a `UserError` is printed without a traceback."""
    arguments = parse(_parser(), argv)
    try:
        done = arguments.call(arguments)
        return int(done)
    except KeyboardInterrupt:
        print("selfevolve: interrupted; `selfevolve resume RUN` goes on from the last complete stage", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # the reader, such as `head`, has gone; keep the interpreter from complaining at exit
        sys.stderr.close()
        return EXIT_FAILED
    except (ValueError, OSError) as error:
        told = _told(error)
        if told is None:
            raise
        message, remedy = told
        print(f"selfevolve: error: {message}", file=sys.stderr)
        if remedy:
            print(f"  -> {remedy}", file=sys.stderr)
        return EXIT_FAILED


def _told(error: Exception) -> tuple[str, str] | None:
    """Return message and remedy of an error that the user can mend; None for a defect, whose traceback is due."""
    if isinstance(error, UserError):
        return error.message, error.remedy
    if isinstance(error, OSError) and error.errno is None:
        # what transformers and the hub raise where a model cannot be had; their texts name it
        return str(error), "give a folder that holds the model, or a hub id that is cached or can be reached"
    if isinstance(error, OSError) and error.errno in USERS_FILES and error.filename is not None:
        return f"{error.filename}: {error.strerror}", "give a path that can be read, or written, there"
    if "aske.errors" in sys.modules:  # not imported for this alone: it costs a quarter of a second
        from aske.errors import AskeError

        if isinstance(error, AskeError):
            return error.message, error.remedy or ""
    return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="selfevolve",
        description="Self-evolution of a questioner and a solver grown from one language model.",
        epilog="A RECIPE is a shipped name (see `selfevolve recipes`) or a YAML file.",
    )
    parser.add_argument("--version", action="version", version=f"selfevolve {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    run = commands.add_parser("run", help="start a run", description="Start a run in a new folder.")
    _add_recipe(run)
    run.add_argument("--out", type=Path, metavar="DIR", help="the run folder (default: runs/NAME-sSEED)")
    run.set_defaults(call=_run)

    resume = commands.add_parser(
        "resume",
        help="go on with a run",
        description="Go on after a kill or an error. Settings that decide how fast and where a run computes, not what, "
        "may change: generation.batch, micro_batch, backends ...",
    )
    resume.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    resume.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="such as micro_batch=1")
    resume.set_defaults(call=_resume)

    join = commands.add_parser(
        "join",
        help="take part in a run's training from another machine",
        description="Take part in the training stages of a run that another machine drives, until it is complete.",
    )
    join.add_argument("run", type=Path, metavar="RUN", help="the run folder, on a file system that all machines share")
    join.add_argument("--machine-rank", type=int, required=True, metavar="N", help="of this machine; 1 or more")
    join.add_argument("--wait", type=float, metavar="SECONDS", help="without a sign of machine 0 (default: 600)")
    join.set_defaults(call=_join)

    check = commands.add_parser(
        "check",
        help="check a recipe, or the settings of train-asker, and estimate its cost; starts nothing",
        description="Resolve and check a recipe, or the settings of train-asker, and estimate replies, tokens and "
        "time. Starts nothing.",
    )
    _add_recipe(check)
    check.add_argument(
        "--tokens-per-second",
        type=float,
        metavar="N",
        help="new tokens a second of your machine in large batches (default: one CPU core's)",
    )
    check.add_argument("--fill", type=float, metavar="X", help="expected length of a reply over its limit, in (0, 1]")
    check.add_argument("--device", metavar="NAME", help="GPU to estimate for, such as h100, a100-80, l40s, rtx4090")
    check.add_argument("--devices", type=int, metavar="N", help="how many (default: one a training process)")
    check.set_defaults(call=_check)

    asker = commands.add_parser(
        "train-asker",
        help="train an asker of Ask-E against a pool of solvers",
        description="Train an asker of Ask-E; measure it on held-out pairs before and after. Goes on where it stopped.",
    )
    asker.add_argument("recipe", metavar="SETTINGS", help="a shipped name such as aske/testbed-train, or a YAML file")
    asker.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="settings, such as steps=20")
    asker.add_argument("--out", type=Path, metavar="DIR", help="the folder (default: runs/NAME-sSEED)")
    asker.set_defaults(call=_train_asker)

    report = commands.add_parser("report", help="write a run's report", description="Write report.html and report.md.")
    report.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    report.set_defaults(call=_report)

    compare = commands.add_parser("compare", help="write one page on several runs", description="Compare runs.")
    compare.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folders, two or more")
    compare.add_argument(
        "--out", type=Path, metavar="FILE", default=Path("comparison.html"), help="default: %(default)s"
    )
    compare.set_defaults(call=_compare)

    recipes = commands.add_parser("recipes", help="list the shipped recipes", description="List the shipped recipes.")
    recipes.set_defaults(call=_recipes)

    demo = commands.add_parser(
        "demo",
        help="R-Quest beside R-Zero on the testbed",
        description="Run R-Quest and R-Zero on the testbed side by side, one core each, and compare them.",
    )
    demo.add_argument(
        "overrides", nargs="*", default=[], metavar="key=value", help="settings for both runs, such as rounds=3"
    )
    demo.add_argument("--out", type=Path, metavar="DIR", default=Path("runs/demo"), help="default: %(default)s")
    demo.set_defaults(call=_demo)
    return parser


def _add_recipe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", metavar="RECIPE", help="a shipped name such as testbed/r_quest, or a YAML file")
    parser.add_argument(
        "overrides", nargs="*", default=[], metavar="key=value", help="settings, such as solver.learning_rate=2e-6"
    )


def _run(arguments: argparse.Namespace) -> int:
    from selfevolve.backbones import missing_models
    from selfevolve.config import load_recipe, missing_files

    recipe = load_recipe(arguments.recipe, arguments.overrides)
    if missing := [*missing_files(recipe), *missing_models(recipe)]:
        raise UserError("\n".join(missing), "make the file, or give another as key=PATH")
    _warn(recipe)
    out = arguments.out or Path("runs") / f"{recipe.name.replace('/', '-')}-s{recipe.seed}"
    # the slow import comes after the checks of what the user typed
    from selfevolve import evolve

    evolve.run(recipe, out)
    return 0


def _resume(arguments: argparse.Namespace) -> int:
    from selfevolve.rundir import RunDir

    _warn(RunDir.open(arguments.run).recipe)
    from selfevolve import evolve

    evolve.resume(arguments.run, arguments.overrides)
    return 0


def _join(arguments: argparse.Namespace) -> int:
    from selfevolve.join import join

    join(arguments.run, arguments.machine_rank, arguments.wait)
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from selfevolve.backbones import missing_models
    from selfevolve.config import backends, config_hash, dump, load_recipe, missing_files
    from selfevolve.config.asker import is_asker_training
    from selfevolve.estimate import estimate, gpu_table, table

    if is_asker_training(arguments.recipe):
        return _check_asker(arguments)
    recipe = load_recipe(arguments.recipe, arguments.overrides)
    cost = estimate(recipe, arguments.tokens_per_second, arguments.fill)
    on_gpus = gpu_table(recipe, cost, arguments.device, arguments.devices)
    print(dump(recipe), end="")
    print(f"\nconfig hash {config_hash(recipe)}\n")
    timed = arguments.tokens_per_second is not None or recipe.dtype == "float32"  # bfloat16 is for GPUs, told below
    print(f"{table(cost, timed)}\n\n{on_gpus}")
    print(f"\nwhere frozen models live\n{backends.table(recipe)}")
    for line in [*missing_files(recipe), *missing_models(recipe)]:
        print(f"before it can run: {line}", file=sys.stderr)
    _warn(recipe)
    return 0


def _check_asker(arguments: argparse.Namespace) -> int:
    """Check the settings of an asker's training."""
    from selfevolve.config.asker import dump_asker_training, load_asker_training
    from selfevolve.estimate import asker_estimate, table

    settings = load_asker_training(arguments.recipe, arguments.overrides)
    cost = asker_estimate(settings, arguments.tokens_per_second, arguments.fill)
    timed = arguments.tokens_per_second is not None or settings.dtype == "float32"
    print(f"{dump_asker_training(settings)}\n{table(cost, timed)}")
    print("no figures for GPUs, memory and disk: `selfevolve check` has them for recipes")
    return 0


def _warn(recipe: Recipe) -> None:
    from selfevolve.backbones import trust_warnings

    for line in trust_warnings(recipe):
        print(f"warning: {line}", file=sys.stderr)


def _train_asker(arguments: argparse.Namespace) -> int:
    from selfevolve.config.asker import load_asker_training

    settings = load_asker_training(arguments.recipe, arguments.overrides)
    name = (settings.name or Path(arguments.recipe).stem).replace("/", "-")
    out = arguments.out or Path("runs") / f"{name}-s{settings.seed}"
    from selfevolve.asker_training import train_asker

    train_asker(settings, out)
    print(out)
    return 0


def _report(arguments: argparse.Namespace) -> int:
    _refuse_no_run(arguments.run)
    from selfevolve.report import write_report

    for path in write_report(arguments.run):
        print(path)
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    if len(arguments.runs) < 2:
        raise UserError("compare got one run", "name two or more: selfevolve compare RUN RUN ...")
    for run in arguments.runs:
        _refuse_no_run(run)
    from selfevolve.report import write_comparison

    print(write_comparison(arguments.runs, arguments.out))
    return 0


def _refuse_no_run(path: Path) -> None:
    """A report needs a folder with rounds in it; unlike resume, it does not mind what became of the config."""
    if not (path / "rounds").is_dir():
        raise UserError(f"{path} is no run folder: it has no rounds/", "name a folder that `selfevolve run` made")


def _recipes(arguments: argparse.Namespace) -> int:
    from selfevolve.config import list_recipes

    rows = list_recipes()
    width = max(len(name) for name, _ in rows)
    for name, description in rows:
        print(f"{name:<{width}}  {description}")
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    from selfevolve.demo import demo

    return demo(arguments.out, arguments.overrides)


if __name__ == "__main__":
    sys.exit(main())
