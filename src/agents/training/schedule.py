"""Length and intervals of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from packing_env.values import Option, Positive, check

Frames = Annotated[float, Option(at_least=1, unit="frames")]


@dataclass(frozen=True)
class Schedule:
    """The length of a training run and its intervals.

    Attributes:
        frames: Number of frames to train for: decisions, summed over the environment's rows.
        minutes: Wall-clock budget in addition to ``frames``, not counting the compilation of
            kernels; None means no budget.
        log_every: Frames between two reads of the metrics.
        save_every: Frames between two calls of ``save``; None leaves this to ``save_minutes``.
        save_minutes: Minutes between two calls of ``save``. If both are None, only the caller
            saves.
        evaluate_every: Frames between two calls of ``evaluate``; None means never.
        redraw_every: Frames between two pools of training instances; None means a single pool.
    """

    frames: Frames = 200_000
    minutes: Positive | None = None
    log_every: Frames = 2048
    save_every: Frames | None = None
    save_minutes: Positive | None = None
    evaluate_every: Frames | None = None
    redraw_every: Frames | None = None

    def __post_init__(self) -> None:
        check(self, "trainer.")

    @property
    def budget(self) -> float | None:
        """Wall-clock budget in seconds; None means no budget."""
        return None if self.minutes is None else 60.0 * self.minutes

    def pool(self, frames: int) -> int:
        """Return the number of the pool that is used after this many frames."""
        return 0 if self.redraw_every is None else frames // int(self.redraw_every)

    @property
    def every(self) -> dict[str, int | None]:
        """Frames between two logs, saves and evaluations."""
        intervals = {
            "log": self.log_every, "save": self.save_every, "evaluate": self.evaluate_every,
        }  # fmt: skip
        return {name: None if frames is None else int(frames) for name, frames in intervals.items()}
