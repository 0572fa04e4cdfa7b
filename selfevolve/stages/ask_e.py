"""Ask-E's reward in a run: who its solvers are, the run's memory of questions, and how sessions become candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aske.game import Rules
from aske.labels import Label
from aske.parsing import Malformed
from aske.prompts import AskePack
from aske.prompts import load_pack as load_aske_pack
from aske.records import SessionRecord
from aske.reward import Memory, RewardSettings
from selfevolve.ask_e import AskEJudge, Table
from selfevolve.backbones import resolve_backbone
from selfevolve.config.backends import Role
from selfevolve.config.names import OWN, SELF
from selfevolve.embed import load_embedder
from selfevolve.questions import parse_question
from selfevolve.records import AskEResult, Candidate, ParseFailure
from selfevolve.sampling import Reply, Sampler, Sampling
from selfevolve.stages.ask_e_sessions import AskeConversations, SelfChecked, final_boundary

if TYPE_CHECKING:
    from selfevolve.stages.context import Context

MEMORY = "memory.json"  # in the questioner's folder: the run's questions up to the end of that round


def weights(ctx: Context, name: str) -> str:
    """Return where a boundary solver's weights lie in this round.

    ``previous`` is the solver of the round before the last; in round 1 there is none, and it is the initial solver.
    """
    match name:
        case "base":
            return ctx.base
        case "initial":
            return ctx.initial_solver
        case "current":
            return ctx.solver(ctx.round - 1)
        case "previous":
            return ctx.solver(max(0, ctx.round - 2))
        case _:
            return resolve_backbone(name)


def role(name: str) -> Role:
    """Return what a boundary solver is to the recipe's backends: the run's own ones live where they always do."""
    if name == "base":
        return "base"
    return "solver" if name in OWN else "boundary"


def table(ctx: Context) -> Table:
    """Return the round's boundary solvers."""
    a = ctx.recipe.ask_e
    places = {name: weights(ctx, name) for pair in a.pairs for name in pair}
    sampling = Sampling(temperature=a.temperature, max_tokens=ctx.recipe.generation.max_new_tokens.solution)
    return Table(a.pairs, {n: ctx.sampler(w, n, role(n)) for n, w in places.items()}, sampling, places, a.checks)


def cross_check(ctx: Context) -> Sampler | None:
    """Return the fixed cross-check; None where the questioner checks itself."""
    name = ctx.recipe.ask_e.cross_check
    return None if name == SELF else ctx.sampler(weights(ctx, name), name, role(name))


def judge(ctx: Context) -> AskEJudge:
    """Return the round's judge, with the run's memory as the last round left it."""
    a = ctx.recipe.ask_e
    embed = load_embedder(a.embedder) if a.alpha else None
    memory = None
    if embed is not None:
        memory = Memory(a.memory)
        if ctx.round > 1:
            memory = Memory.load(ctx.run.file(ctx.round - 1, "questioner", MEMORY), embed)
    settings = RewardSettings(
        too_easy=a.too_easy, too_hard=a.too_hard, alpha=a.alpha, neighbours=a.neighbours, memory=a.memory
    )
    responses = ctx.recipe.questioner.responses
    return AskEJudge(table(ctx), ctx.pack.solve, responses, cross_check(ctx), settings, memory, embed)


def self_checked(ctx: Context, seats: Table) -> SelfChecked:
    """Return conversations of one turn in which the questioner answers its own question."""

    def read(reply: Reply) -> str | None:
        return parse_question(reply.text, reply.finish_reason.value)[0]

    return SelfChecked(read, ctx.pack.solve, seats, ctx.seed("cross-check"))


def session_pack(ctx: Context) -> AskePack:
    """Return the texts of sessions."""
    return load_aske_pack(ctx.recipe.ask_e.prompts or ("testbed" if ctx.recipe.prompts == "testbed" else "standard"))


def sessions(ctx: Context, seats: Table) -> AskeConversations:
    """Return whole sessions with probes."""
    a, q = ctx.recipe.ask_e, ctx.recipe.questioner
    asker = Sampling(1, q.temperature, q.top_p, max_tokens=ctx.recipe.generation.max_new_tokens.question)
    return AskeConversations(
        session_pack(ctx),
        Rules(probes=a.probes, checks=a.checks),
        seats,
        group=q.responses,
        seed=ctx.seed("sessions"),
        asker=asker,
        cross_check=cross_check(ctx),
        prefix=f"r{ctx.round:02d}",
    )


def candidate(round: int, step: int, index: int, session: SessionRecord) -> Candidate:
    """Return the candidate that a session's final question stands for; its reply is the asker's last turn."""
    last = session.turns[-1] if session.turns else None
    said = [m.content for m in session.transcript if m.role == "assistant"]
    cut = last is not None and last.malformed is Malformed.CUT_OFF
    failure = ParseFailure.CUT_OFF if cut else ParseFailure.NO_QUESTION
    return Candidate(
        id=f"r{round:02d}-questioner-s{step:02d}-{index:06d}",
        round=round,
        stage="questioner",
        step=step,
        index=index,
        reply=said[-1] if said else "",
        finish_reason="length" if cut else "stop",
        question=session.question,
        own_answer=last.draft_answer if last and session.question is not None else None,
        parse_failure=failure if session.question is None else None,
    )


def result(session: SessionRecord, seats: Table) -> AskEResult:
    """Return what the game says of a session."""
    checks = next((call.replies for call in session.calls if call.seat == "cross_check"), ())
    boundary = final_boundary(session.calls) if session.label is not Label.NO_QUESTION else ()
    return AskEResult(
        session.pair,
        seats.same_weights(session.pair),
        session.grade,
        boundary,
        checks,
        session.malformed,
        session.to_json(),
    )
