"""Training of an asker on its own: sessions against a pool of solvers, measured on pairs that training never meets.

The folder::

    config.yaml  environment.json
    evaluation.jsonl    one object an evaluation: rates on held-out pairs, chance line; step 0 is before training
    evaluation/         the sessions of each evaluation
    train_log.jsonl     one object a step: the trainer's figures, labels, and the audit by more cross-checks
    sessions.jsonl      every session of training with its reward
    memory.json         the questions that diversity is measured against
    servers/            logs of servers that the training started
    savepoint/          while it trains: what it goes on from after a kill
    checkpoint/         the trained asker
    summary.json        before and after; written last

Training is one stage: a finished one is not repeated, and a killed one goes on from its newest savepoint, or begins
anew where there is none.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from aske.game import Rules
from aske.labels import Label
from aske.pool import model_path
from aske.prompts import load_pack
from aske.reward import Memory, RewardSettings, score
from selfevolve import serving
from selfevolve.ask_e import Table
from selfevolve.asker_evaluation import Exam, audit_figures, evaluate
from selfevolve.backbones import missing_model, resolve_backbone
from selfevolve.config.asker import (
    INITIAL,
    POLICY,
    AskerTraining,
    asker_training_from,
    backend_of,
    dump_asker_training,
)
from selfevolve.config.backends import Backend
from selfevolve.config.yaml_text import read_mapping
from selfevolve.embed import load_embedder
from selfevolve.environment import environment
from selfevolve.errors import ConfigChangedError, DamagedFileError, RunFolderError, UserError
from selfevolve.jsonl import read_jsonl, write_json, write_jsonl, write_text
from selfevolve.sampling import KeyedSampler, Sampler, Sampling
from selfevolve.seeds import derive
from selfevolve.stages.ask_e_sessions import AskeConversations, Outcome
from selfevolve.train import LogRow, LoraSpec, Savepoints, TrainRow, TrainSpec, train_conversations

Progress = Callable[[str], None]  # told a line at a time
CONFIG, SUMMARY, CHECKPOINT, EVALUATION = "config.yaml", "summary.json", "checkpoint", "evaluation.jsonl"
SERVERS = "servers"  # logs of servers that the training starts
_REMEDY = "restore it, or delete {}/checkpoint to train anew"
LOG, SESSIONS, MEMORY = "train_log.jsonl", "sessions.jsonl", "memory.json"
EVALUATIONS, SAVEPOINT = "evaluation", "savepoint"
WRITTEN = (EVALUATION, LOG, SESSIONS, MEMORY)  # files that grow as it trains


def train_asker(settings: AskerTraining, out: str | Path, progress: Progress = print) -> dict[str, Any]:
    """Train an asker into ``out`` and return the summary; a folder with the same settings is gone on with.

    Raises:
        UserError: the folder holds something else, or a model is missing.
    """
    out = Path(out)
    if not (out / SUMMARY).is_file():
        _refuse_missing(settings)
    _claim(settings, out)
    if (out / SUMMARY).is_file():
        return _summary(out / SUMMARY)
    models = _Models(settings, out / SERVERS)
    try:
        return _train_and_measure(settings, out, models, progress)
    finally:
        models.close()


def _train_and_measure(settings: AskerTraining, out: Path, models: _Models, progress: Progress) -> dict[str, Any]:
    exam = _exam(settings, models)
    trained = out / CHECKPOINT
    if not trained.is_dir():
        _train(settings, out, models, exam, progress)
        serving.close([])  # the trainer holds itself in cycles, and its weights a GPU's memory
    rows = [row for row in _read(out / EVALUATION) if row.get("step", settings.steps) < settings.steps]
    if not rows:
        raise DamagedFileError(f"{out / EVALUATION} holds no measurement from before training", _REMEDY.format(out))
    after = evaluate(exam, models.sampler(Backend(), str(trained), "trained"), settings.steps, out / EVALUATIONS)
    progress(_said(after))
    write_jsonl(out / EVALUATION, [*rows, after])
    summary = {
        "name": settings.name,
        "seed": settings.seed,
        "before": rows[0],
        "after": after,
        "audit": audit_figures(row["audit"] for row in _read(out / LOG)),
    }
    write_json(out / SUMMARY, summary)
    return summary


def _refuse_missing(settings: AskerTraining) -> None:
    """Raise for texts or models that are not there, before a folder is made with settings that cannot work."""
    load_pack(settings.prompts)
    named = {"backbone": settings.backbone}
    named |= {
        f"solvers.{name}": model
        for name, model in settings.solvers.items()
        if backend_of(settings, name).kind != "endpoint"
    }
    if missing := [line for key, name in named.items() if (line := missing_model(key, model_path(name))) is not None]:
        raise UserError("\n".join(missing), "mend the settings; a model is a folder, a hub id or testbed:NAME")


def _claim(settings: AskerTraining, out: Path) -> None:
    """Make the folder, or see that it was made with these settings; what an unfinished training left goes."""
    config = out / CONFIG
    if config.is_file():
        made, _ = read_mapping(config, str(config))
        old, new = asker_training_from(made, str(config)).model_dump(mode="json"), settings.model_dump(mode="json")
        changed = [f"  {k}: {old[k]} -> {new[k]}" for k in new if old[k] != new[k] and k != "save_minutes"]
        if changed:
            raise ConfigChangedError(
                f"{out} was made with other settings (as made -> as asked):\n" + "\n".join(changed),
                "put the values back to go on, or choose another --out",
            )
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunFolderError(f"{out} is not empty and holds no training of an asker", "choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    if not config.is_file():
        write_json(out / "environment.json", environment())
        write_text(config, dump_asker_training(settings))
    if not (out / CHECKPOINT).is_dir():
        for name in WRITTEN:
            (out / name).unlink(missing_ok=True)
        shutil.rmtree(out / EVALUATIONS, ignore_errors=True)


class _Models:
    """The models of a training, each loaded, or served, once."""

    def __init__(self, settings: AskerTraining, logs: Path) -> None:
        self.settings, self.logs = settings, logs
        self.backbone = _resolved(settings.backbone)
        self.loaded: dict[tuple[str, str], KeyedSampler] = {}

    def sampler(self, backend: Backend, weights: str, name: str) -> KeyedSampler:
        place = (weights, backend.model_dump_json())
        if place not in self.loaded:
            s = self.settings
            way = serving.Way(s.dtype, s.batch)
            made = serving.make_sampler(way, backend, weights, name, self.logs / f"{name}.log")
            self.loaded[place] = made
            if backend.kind == "endpoint":  # a wrong name or a dead endpoint is told before anything is trained
                _check(made)
            serving.start(made)
        return self.loaded[place]

    def solver(self, name: str) -> KeyedSampler:
        """Return a solver of the pool, or the asker before training."""
        return self.sampler(backend_of(self.settings, name), self.weights(name), name)

    def weights(self, name: str) -> str:
        """Return where a solver's weights lie; for an endpoint the name that it lists."""
        if name == INITIAL:
            return self.backbone
        model = self.settings.solvers[name]
        return model if backend_of(self.settings, name).kind == "endpoint" else _resolved(model)

    def table(self, pairs: Sequence[tuple[str, str]]) -> Table:
        s = self.settings
        names = list(dict.fromkeys(name for pair in pairs for name in pair))
        weights = {name: self.weights(name) for name in names}
        sampling = Sampling(temperature=s.solver_temperature, max_tokens=s.max_solution_tokens)
        return Table(tuple(pairs), {name: self.solver(name) for name in names}, sampling, weights, s.checks)

    def close(self) -> None:
        """Stop the servers, and forget the models."""
        serving.close([self.loaded.pop(place) for place in list(self.loaded)])


def _check(sampler: KeyedSampler) -> None:
    try:
        serving.check(sampler)
    except serving.ServerError as error:
        raise UserError(error.message, "mend the endpoint, then start again with the same --out") from None


def _resolved(model: str) -> str:
    return resolve_backbone(model_path(model))


def _exam(settings: AskerTraining, models: _Models) -> Exam:
    from transformers import AutoConfig, AutoTokenizer

    from selfevolve.sampling.transformers_sampler import Formatter

    s, e = settings, settings.evaluation
    formatter = Formatter(AutoTokenizer.from_pretrained(models.backbone))
    context = getattr(AutoConfig.from_pretrained(models.backbone).get_text_config(), "max_position_embeddings", None)
    return Exam(
        table=models.table(s.heldout_pairs),
        pack=load_pack(s.prompts),
        rules=Rules(probes=s.probes, checks=e.checks),
        asker=Sampling(temperature=s.temperature, top_p=s.top_p, max_tokens=s.max_turn_tokens),
        cross_check=models.solver(e.cross_check),
        sessions=e.sessions,
        resamples=e.resamples,
        seed=derive(s.seed, "evaluation"),
        context=context,
        count=lambda prompt: len(formatter.ids([prompt])[0]),
        oracle=s.prompts == "testbed",
    )


def _train(settings: AskerTraining, out: Path, models: _Models, exam: Exam, progress: Progress) -> None:
    s = settings
    every = s.evaluation.every

    def hook(step: int, policy: Sampler) -> None:
        done = step - 1
        if done == 0 or (every and done % every == 0):
            row = evaluate(exam, policy, done, out / EVALUATIONS)
            progress(_said(row))
            with (out / EVALUATION).open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    game = AskeConversations(
        exam.pack,
        Rules(probes=s.probes, checks=s.checks),
        models.table(s.train_pairs),
        group=s.sessions,
        seed=derive(s.seed, "sessions"),
        asker=exam.asker,
        cross_check=None if s.cross_check == POLICY else models.solver(s.cross_check),
        audit=s.audit,
        hook=hook,
    )
    rows = [TrainRow(game.pack.open(s.probes, game.rules.question_words))] * s.groups
    points = Savepoints(out / SAVEPOINT, s.save_minutes, lambda folder: _copy(out, folder)) if s.save_minutes else None
    if points is not None and (saved := points.latest()) is not None:
        _copy(saved.caller, out)
        progress(f"going on after step {saved.step} of {s.steps}")
    with (out / LOG).open("a", encoding="utf-8") as log, (out / SESSIONS).open("a", encoding="utf-8") as sessions:
        scorer = _Scorer(settings, out, sessions)

        def step_done(row: LogRow) -> None:
            log.write(json.dumps({**asdict(row), **scorer.figures}) + "\n")
            log.flush()
            labels = ", ".join(f"{label} {n}" for label, n in scorer.figures["labels"].items())
            mean = "none" if row.reward_mean is None else f"{row.reward_mean:.3f}"
            progress(f"step {row.step}/{s.steps}  reward {mean}  {labels}  {row.seconds:.1f} s")

        start, end = Path(models.backbone), out / CHECKPOINT
        train_conversations(start, rows, game, scorer, _spec(s), end, step_done, savepoints=points)
    if points is not None:
        points.remove()


def _copy(source: Path, target: Path) -> None:
    """Copy what the training has written so far."""
    for name in WRITTEN:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    if (source / EVALUATIONS).is_dir():
        shutil.copytree(source / EVALUATIONS, target / EVALUATIONS, dirs_exist_ok=True)


class _Scorer:
    """The reward of a step's sessions, with the one memory of the run; writes what it saw."""

    def __init__(self, settings: AskerTraining, out: Path, sessions: TextIO) -> None:
        r = settings.reward
        self.settings = RewardSettings(
            calibrated=r.calibrated,
            too_easy=r.too_easy,
            too_hard=r.too_hard,
            malformed=r.malformed,
            alpha=r.alpha,
            neighbours=r.neighbours,
            memory=r.memory,
        )
        self.embed = load_embedder(r.embedder) if r.alpha else None
        self.memory = Memory(r.memory) if r.alpha else None
        if self.embed is not None and (out / MEMORY).is_file():  # the training goes on
            self.memory = Memory.load(out / MEMORY, self.embed)
        self.out, self.sessions = out, sessions
        self.figures: dict[str, Any] = {}  # of the last step

    def __call__(self, step: int, outcomes: Sequence[Outcome]) -> list[float | None]:
        records = [o.record for o in outcomes]
        rewards = score(
            [r.label for r in records],
            [r.malformed for r in records],
            [r.question for r in records],
            self.settings,
            self.memory,
            self.embed,
        )
        if self.memory is not None:
            self.memory.save(self.out / MEMORY)
        for outcome, reward in zip(outcomes, rewards, strict=True):
            scored = None if reward is None else {"total": reward.total, "terms": reward.terms}
            audit = outcome.audit.label.value if outcome.audit else None
            row = {"step": step, "reward": scored, "audit": audit, **outcome.record.to_json()}
            self.sessions.write(json.dumps(row, ensure_ascii=False) + "\n")
        self.sessions.flush()
        labels = Counter(r.label.value for r in records)
        self.figures = {
            "labels": {label.value: labels[label.value] for label in Label},
            "audit": [[o.record.label.value, o.audit.label.value] for o in outcomes if o.audit is not None],
            "terms": _means([r.terms for r in rewards if r is not None]),
        }
        return [None if reward is None else reward.total for reward in rewards]


def _means(terms: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: sum(t[name] for t in terms) / len(terms) for name in terms[0]} if terms else {}


def _spec(s: AskerTraining) -> TrainSpec:
    return TrainSpec(
        steps=s.steps,
        prompts=s.groups,
        responses=s.sessions,
        global_batch=s.update_groups,
        micro_batch=s.micro_batch,
        learning_rate=s.learning_rate,
        kl=s.kl,
        temperature=s.temperature,
        top_p=s.top_p,
        max_new_tokens=s.max_turn_tokens,
        seed=derive(s.seed, "training"),
        lora=LoraSpec(s.lora.rank, s.lora.alpha, s.lora.targets) if s.lora else None,
        loss_type=s.loss,
        ratio_max=s.ratio_max,
        max_grad_norm=s.max_grad_norm,
        dtype=s.dtype,
        sample_batch=s.batch,
    )


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        return read_jsonl(path)
    except DamagedFileError as error:
        raise DamagedFileError(error.message, _REMEDY.format(path.parent)) from None


def _summary(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DamagedFileError(f"{path} is no whole JSON: {error}", f"delete {path}; it is made anew") from None
    if not isinstance(found, dict):
        raise DamagedFileError(f"{path} holds {type(found).__name__}, no object", f"delete {path}; it is made anew")
    return found


def _said(row: dict[str, Any]) -> str:
    def percent(value: float | None) -> str:
        return "-" if value is None else f"{100 * value:.1f}%"

    rate, line = row["calibrated"], row["chance"]["copies"]
    return (
        f"held-out pairs after {row['step']} steps: calibrated {percent(rate['value'])} "
        f"[{percent(rate['low'])}, {percent(rate['high'])}] of {rate['n']}, chance line {percent(line['value'])}, "
        f"ungradable {percent(rate['ungradable_share'])}"
    )
