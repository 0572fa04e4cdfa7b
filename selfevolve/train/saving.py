"""When a stage under transformers' trainer is saved."""

from __future__ import annotations

from time import monotonic
from typing import Any

from accelerate.utils import broadcast_object_list
from transformers.trainer_callback import TrainerCallback


class SaveByTime(TrainerCallback):  # type: ignore[misc]
    """Asks for a savepoint after the first rollout step that ends some minutes after the last one."""

    def __init__(self, minutes: float, updates: int) -> None:
        """Start the clock; a step has ``updates`` updates, and is saved whole."""
        self.seconds, self.updates = 60 * minutes, updates
        self.last = monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Decide after an update, by the main process's clock; the last step is saved as the stage's result."""
        if state.global_step % self.updates or state.global_step >= state.max_steps:
            return control
        due = [monotonic() - self.last >= self.seconds]
        broadcast_object_list(due)
        if due[0]:
            control.should_save = True
        return control

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Count from the end of the saving."""
        self.last = monotonic()
        return control
