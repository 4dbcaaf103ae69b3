"""Length and intervals of a training run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """The length of a training run, and its intervals.

    Attributes:
        frames: Frames to train for: decisions, summed over the environment's rows.
        minutes: Wall-clock budget besides ``frames``, without the compilation of kernels; None:
            none.
        seconds: The same in seconds.
        log_every: Frames between two reads of the metrics.
        save_every: Frames between two calls of ``save``; None: see ``save_minutes``.
        save_minutes: Minutes between two calls of ``save``; None here too: only the caller saves.
        evaluate_every: Frames between two calls of ``evaluate``; None: never.
        redraw_every: Frames between two pools of training instances; None: one pool.
    """

    frames: float = 200_000
    minutes: float | None = None
    seconds: float | None = None
    log_every: float = 2048
    save_every: float | None = None
    save_minutes: float | None = None
    evaluate_every: float | None = None
    redraw_every: float | None = None

    def __post_init__(self) -> None:
        for name in ("frames", "log_every", "save_every", "evaluate_every", "redraw_every"):
            if (value := getattr(self, name)) is not None:
                positive_frames(name, value)
        for name in ("minutes", "seconds", "save_minutes"):
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value is not None and not (number and value > 0):
                raise ValueError(
                    f"trainer.{name}={value!r} must be a positive number, or null for no limit"
                )

    @property
    def budget(self) -> float | None:
        """Wall-clock budget in seconds; None: none."""
        limits = (None if self.minutes is None else 60.0 * self.minutes, self.seconds)
        return min((float(budget) for budget in limits if budget is not None), default=None)

    def pool(self, frames: int) -> int:
        """Return the number of the pool that is played after this many frames."""
        return 0 if self.redraw_every is None else frames // int(self.redraw_every)

    @property
    def every(self) -> dict[str, int | None]:
        """Frames between two logs, saves and evaluations."""
        intervals = {
            "log": self.log_every, "save": self.save_every, "evaluate": self.evaluate_every,
        }  # fmt: skip
        return {name: None if frames is None else int(frames) for name, frames in intervals.items()}


def positive_frames(name: str, value: float) -> int:
    """Return a positive number of frames as an integer."""
    if not value >= 1:
        raise ValueError(f"trainer.{name}={value} must be at least 1")
    return int(value)
