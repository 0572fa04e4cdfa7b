"""The estimate as text: tokens and CPU time by stage, GPU hours by stage, memory by configuration, disk."""

from __future__ import annotations

from collections.abc import Callable

from selfevolve.config import Recipe
from selfevolve.config.backends import ROLES, Backend
from selfevolve.errors import UserError
from selfevolve.estimate.cost import PROMPT, Estimate
from selfevolve.estimate.devices import Device, find_device
from selfevolve.estimate.gpu import ENGINE_ROWS, GpuTime, gpu_time
from selfevolve.estimate.memory import USABLE, Memory, disk, memory_table, rows_that_fit
from selfevolve.estimate.shapes import Shape, UnknownShape, shape_of
from selfevolve.estimate.throughput import BANDWIDTH_SHARE, DECODE_MFU, EAGER_LAYER, GRAPH_LAYER, MFU

GB = 1e9
DEFAULT_DEVICE = "h100"


def table(result: Estimate, timed: bool = True) -> str:
    """Return replies and tokens as text, one line a stage, and the time at the stated throughput where ``timed``."""

    def line(name: str, replies: str, tokens: int, expected: float, seconds: float) -> str:
        time = f"{duration(seconds):>16}" if timed else ""
        return f"{name:<16}{replies:>18}{tokens:>18,}{expected:>18,.0f}{time}"

    time = f"{'time, about':>16}" if timed else ""
    lines = [f"{'stage':<16}{'replies, at most':>18}{'tokens, at most':>18}{'expected':>18}{time}"]
    for title, costs in (("once", result.once), (f"a round, {result.rounds} in all", result.a_round)):
        if costs:
            lines.append(f"-- {title}")
        lines += [line(c.stage, f"{c.replies:,}", c.tokens, c.expected, c.seconds) for c in costs]
    lines.append(line("whole run", "", result.tokens, result.expected, result.seconds))
    stopped = any(a.share < 1 for cost in (*result.once, *result.a_round) for a in cost.asked)
    early = ", early stopping leaves what it was measured to leave" if stopped else ""
    lines.append(f"expected: replies fill {result.fill:.0%} of their limit (--fill){early}")
    if timed:
        lines.append(
            f"times at {result.tokens_per_second:,.0f} new tokens a second (by default what one CPU core gives a "
            "testbed model or a 0.5B one); --tokens-per-second states your machine's"
        )
    return "\n".join(lines)


def gpu_table(recipe: Recipe, result: Estimate, device: str | None = None, devices: int | None = None) -> str:
    """Return GPU hours, memory and disk as text; where a model's shape is not known, what is missing.

    Args:
        recipe: the settings.
        result: its estimate.
        device: a name of `DEVICES`; None: one H100's.
        devices: how many; None: as many as the recipe has training processes.

    Raises:
        UserError: no such device, or less than one.
    """
    found = find_device(device or DEFAULT_DEVICE)
    number = recipe.processes if devices is None else devices
    if number < 1:
        raise UserError(f"--devices is {number}; it must be at least 1")
    try:
        shape = shape_of(recipe.backbone)
        time = gpu_time(recipe, result, found, number)
    except UnknownShape as error:
        return f"no figures for GPUs, memory and disk: {error.message}\n  -> {error.remedy}".removesuffix("\n  -> ")
    served = _with_vllm(recipe)
    faster = None if served is None else gpu_time(served, result, found, number)
    return "\n\n".join([_hours(recipe, time, faster), _memory(recipe, shape, found), _disk(recipe, shape, result.fill)])


def _with_vllm(recipe: Recipe) -> Recipe | None:
    """Return the recipe with vLLM wherever transformers decodes for a frozen model; None: it does so nowhere."""
    vllm = Backend(kind="vllm") if recipe.processes == 1 else Backend(kind="server", concurrency=ENGINE_ROWS)
    given = recipe.backends
    changed = {
        name: vllm
        for name in ("default", *ROLES)
        if (place := getattr(given, name)) is not None and place.kind == "transformers"
    }
    return recipe.model_copy(update={"backends": given.model_copy(update=changed)}) if changed else None


def _hours(recipe: Recipe, time: GpuTime, faster: GpuTime | None) -> str:
    lines = [
        f"GPU time on {time.devices} x {time.device.title}, estimated",
        f"{'stage':<16}{'GPU h, sampling':>18}{'GPU h, learning':>18}{'on the clock':>16}",
    ]
    for title, stages in (("once", time.once), (f"a round, {time.rounds} in all", time.a_round)):
        if stages:
            lines.append(f"-- {title}")
        lines += [
            f"{s.stage:<16}{hours(s.sampling):>18}{hours(s.learning):>18}{duration(s.elapsed):>16}" for s in stages
        ]
    lines.append(f"{'whole run':<16}{hours(time.busy) + ' GPU h':>36}{duration(time.elapsed):>16}")
    if faster is not None:
        lines.append(
            f"{'frozen models under vLLM instead':<34}{hours(faster.busy) + ' GPU h':>18}{duration(faster.elapsed):>16}"
        )
    lines.append(
        f"assumed, not measured on a GPU: {BANDWIDTH_SHARE:.0%} of the memory bandwidth and {DECODE_MFU:.0%} of the "
        f"peak arithmetic in decoding, {MFU:.0%} in prefill and learning; {EAGER_LAYER * 1e3:g} ms a layer and step in "
        f"process, {GRAPH_LAYER * 1e3:g} ms under vLLM; {PROMPT} tokens a prompt; no time for communication"
    )
    if recipe.processes > time.devices:
        lines.append(f"the recipe has {recipe.processes} processes; they need as many devices")
    if time.outside:
        lines.append("replies from endpoints are not counted: their GPUs are not this machine's")
    return "\n".join(lines)


def _memory(recipe: Recipe, shape: Shape, device: Device) -> str:
    columns = memory_table(recipe, shape, device.memory * GB)
    rows: tuple[tuple[str, Callable[[Memory], float]], ...] = (
        ("policy's weights", lambda m: m.weights),
        ("gradients", lambda m: m.gradients),
        ("AdamW", lambda m: m.optimiser),
        ("reference of the KL term", lambda m: m.reference),
        ("copy that samples", lambda m: m.copy),
        ("frozen models beside it", lambda m: m.frozen),
        ("activations, micro batch", lambda m: m.activations),
        ("or keys, values, batch", lambda m: m.cache),
        ("at most together", lambda m: m.peak),
    )
    width = 22
    lines = [
        f"memory of a training process in GB (* is the recipe's way), {weights(shape.parameters)} weights",
        f"{'':<28}" + "".join(f"{('* ' if m.own else '') + m.title:>{width}}" for m in columns),
    ]
    lines += [f"{name:<28}" + "".join(f"{gigabytes(of(m)):>{width}}" for m in columns) for name, of in rows]
    room = USABLE * device.memory
    lines.append(f"{f'of {room:.0f} GB usable':<28}" + "".join(f"{_verdict(m, room):>{width}}" for m in columns))
    [own] = [m for m in columns if m.own]
    lines.append(_advice(recipe, shape, device, own))
    return "\n".join(lines)


def _verdict(memory: Memory, room: float) -> str:
    if memory.peak <= room * GB:
        return "fits"
    if memory.kept > room * GB:
        return "does not fit"
    return "smaller batches fit"


def _advice(recipe: Recipe, shape: Shape, device: Device, own: Memory) -> str:
    """Return how far the batches of the recipe's own way fit."""
    free = USABLE * device.memory * GB - own.kept
    if free <= 0:
        return (
            "the recipe's own way does not fit this device (the times above take its batches as they are): shard the "
            "weights (accelerate_config), use lora, or put the frozen models on servers with devices of their own "
            "(backends)"
        )
    rows = rows_that_fit(recipe, shape, device.memory * GB, own.kept)
    each = own.activations / recipe.micro_batch
    return (
        f"beside what is held throughout fit {rows} rows of full length (generation.batch is "
        f"{recipe.generation.batch}; replies seldom all reach the limit), and {int(free // each)} sequences of full "
        f"length in a backward pass (micro_batch is {recipe.micro_batch}, gradient_checkpointing is "
        f"{str(recipe.gradient_checkpointing).lower()})"
    )


def _disk(recipe: Recipe, shape: Shape, fill: float) -> str:
    d = disk(recipe, shape, fill)
    kept = "all are kept" if recipe.keep_checkpoints is None else f"keep_checkpoints is {recipe.keep_checkpoints}"
    return (
        f"disk: {gigabytes(d.total)} GB for {recipe.rounds} rounds: {d.checkpoints} checkpoints of "
        f"{gigabytes(d.checkpoint)} GB (float32; {kept}), records about {gigabytes(d.records)} GB, "
        f"savepoints of a training stage {gigabytes(d.savepoints)} GB"
    )


def hours(seconds: float) -> str:
    """Return seconds as hours with three digits."""
    value = seconds / 3600
    return "-" if value == 0 else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def gigabytes(number: float) -> str:
    """Return bytes in GB with three digits."""
    value = number / GB
    return "-" if value == 0 else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def weights(number: int) -> str:
    """Return a number of weights in billions or millions."""
    return f"{number / 1e9:.2f} billion" if number >= 5e7 else f"{number / 1e6:.2f} million"


def duration(seconds: float) -> str:
    """Return seconds in the largest unit that keeps two digits, such as ``12.3 min``."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.1f} s"
