"""CUDA graphs: record work once and replay it. A collector replays policy and step in this way.

A recording holds operations on memory, but no Python code: a replay reads and writes the same
addresses as the recording.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from agents.nested import named_tensors
from agents.training import process
from agents.training.rollout import DeviceCollector
from packing_env.envs import PackingEnv
from packing_env.types import ParameterError

_LOGGER = logging.getLogger("agents.training.capture")
CHECKED = 3
"""Number of replayed steps that are compared with ordinary steps of policy and environment."""


class CaptureError(RuntimeError):
    """A recording gives other results than the recorded work, or cannot be made."""


def cuda_graph(work: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
    """Record ``work``, which has run once already; return the replay and the result's tensors."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()
    return graph.replay, result


def captures(option: bool | str, name: str, obstacles: Mapping[str, str]) -> bool:
    """Return whether to capture; ``auto`` captures if there is no obstacle, and logs the choice.

    Args:
        option: True, False or ``"auto"``.
        name: Name of the option.
        obstacles: Reasons against capturing, each with its remedy. If ``option`` is True, an
            obstacle raises a ParameterError.
    """
    if option not in (True, False, "auto"):
        raise ParameterError(f"{name}={option!r} is unknown; choose auto, true or false")
    # Only the first obstacle is named; the others appear when it is removed.
    reason, remedy = next(iter(obstacles.items()), ("", ""))
    if option == "auto":
        _LOGGER.info("%s=auto: %s", name, f"off, {reason}" if reason else "on")
    elif option and reason:
        raise ParameterError(
            f"{name}=true records a CUDA graph, but {reason}; {remedy}, or {name}=false"
        )
    return bool(option) and not reason


class Captured:
    """Work recorded as one CUDA graph, which is checked against the work itself.

    Values that change between calls, such as a rate, must be tensors that change in place.

    Args:
        work: Function that changes tensors in place, and returns tensors whose addresses stay the
            same.
        memory: Function that returns the tensors that ``work`` changes, by name. Recording restores
            these tensors and the random generators.
        ordinary: The function with which the recording is compared; by default ``work``.
        steps: Number of successive calls that are compared.
        exact: Whether results must be equal bit for bit. False is for kernels that sum in varying
            order: a result may deviate by ten times the difference between two ordinary calls from
            the same state.

    Raises:
        CaptureError: The work cannot be recorded, or the recording differs from it.
    """

    def __init__(
        self,
        work: Callable[[], Any],
        memory: Callable[[], Mapping[str, Tensor]],
        *,
        ordinary: Callable[[], Any] | None = None,
        steps: int = 1,
        exact: bool = True,
    ) -> None:
        tensors = list(memory().values())
        restore = _restorer(tensors)

        def outcome(work: Callable[[], Any]) -> dict[str, Tensor]:
            """Return copies of the results and of the memory after calls from the start state."""
            restore()
            copies: dict[str, Tensor] = {}
            for step in range(1, steps + 1):
                after = named_tensors(work())
                after |= {f"state {name}": value for name, value in memory().items()}
                copies |= {f"{name} of step {step}": value.clone() for name, value in after.items()}
            return copies

        try:
            # 1. Call the work without a graph; libraries then also allocate their workspaces.
            with on_side_stream(tensors[0].device):
                one = outcome(ordinary or work)
                other = one if exact else outcome(ordinary or work)
            # 2. Record the work, and replay the recording from the same state.
            restore()
            self._replay, self._result = cuda_graph(work)
            recorded = outcome(self)
        except Exception as error:  # Triton's errors are not RuntimeErrors
            raise CaptureError(
                f"a graph cannot be captured ({type(error).__name__}: {error})"
            ) from error
        finally:
            restore()
        # 3. Find every tensor that is missing on one side or differs.
        wrong = one.keys() ^ recorded.keys()
        for name in one.keys() & recorded.keys():
            if not as_close(recorded[name], one[name], other[name]):
                wrong.add(name)
        if wrong:
            raise CaptureError(f"the recorded graph differs in {', '.join(sorted(wrong))}")

    def __call__(self) -> Any:
        """Replay the recording; return its result, which the next call overwrites."""
        # The result's tensors are those of the recording; only their contents are new.
        self._replay()
        return self._result


def _restorer(memory: list[Tensor]) -> Callable[[], None]:
    values = [value.clone() for value in memory]
    random_state = process.random_state()

    def restore() -> None:
        with torch.no_grad():
            for place, value in zip(memory, values, strict=True):
                place.copy_(value)
        process.load_random_state(random_state)

    return restore


def attempted(record: Callable[[], Captured], option: str, required: bool) -> Captured | None:
    """Return a recording; if it fails and is not required, warn and return None."""
    try:
        return record()
    except CaptureError as error:
        if required:
            raise CaptureError(f"{error}; use {option}=false") from error
        _LOGGER.warning("%s=auto: off, %s", option, error)
        return None


def as_close(value: Tensor, one: Tensor, other: Tensor) -> bool:
    """Return whether ``value`` equals a result or is near ``one``; reads from the device.

    Near means that it differs by at most ten times the difference of the two results.
    """
    if value.shape != one.shape or value.dtype != one.dtype:
        return False
    if any(torch.allclose(value, each, 0, 0, equal_nan=True) for each in (one, other)):
        return True
    # Integers and masks must be equal; sums of floats may have other rounding errors.
    if not value.is_floating_point():
        return False
    apart, away = ((x - one).abs().amax() for x in (other, value))
    return bool(away <= 10 * apart)


@contextlib.contextmanager
def on_side_stream(device: torch.device) -> Iterator[None]:
    """Run the block on a side stream, as torch requires for warm-ups; do nothing on a CPU."""
    if device.type != "cuda":
        yield
        return
    # Each stream waits for the other, so the order of the work is kept.
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        yield
    torch.cuda.current_stream(device).wait_stream(side)


class CapturedCollector(DeviceCollector):
    """A :class:`~agents.training.rollout.DeviceCollector` that replays policy and step as a graph.

    The graph is recorded at the first step, and again after a reset from outside, after
    :meth:`load_state_dict`, and when the policy enters another ``stage``. Its first steps are
    compared bit for bit with those of the environment and the policy, including random draws.

    Args:
        env: The environment, on a CUDA device, with ``autoreset="native"``.
        policy: Writes ``action``; it explores (``ExplorationType.RANDOM``).
        required: If False, a failed recording gives a warning, and work continues without a graph.
    """

    def __init__(
        self,
        env: PackingEnv,
        policy: TensorDictModuleBase,
        *,
        required: bool = True,
    ) -> None:
        super().__init__(env, policy)
        self._required, self._gave_up = required, False
        self._captured: Captured | None = None
        self._stage: object = None
        self._state: object = None

    @torch.no_grad()
    def step(self) -> TensorDictBase:
        """Take one decision in every row: root and ``next`` entries, ``[*batch_size]``.

        Raises a CaptureError if a required graph cannot be recorded; in this case nothing has
        changed.
        """
        # 1. Record again if the memory that the graph reads has moved.
        stage = getattr(self.policy, "stage", None)
        moved = stage != self._stage or self.env.state is not self._state
        if not self._gave_up and (moved or self._captured is None):
            self._stage = stage
            self._captured = attempted(self._capture, "collector.capture", self._required)
            self._gave_up = self._captured is None
        # 2. Without a graph, step as usual.
        if self._captured is None:
            return super().step()
        # 3. Replay. Return a copy, because the graph overwrites its own result.
        transition: TensorDictBase = self._captured().clone()
        return transition

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned; the next step records again."""
        super().load_state_dict(state)
        self._captured = None

    def _capture(self) -> Captured:
        # 1. Give state and observations separate memory.
        root = self.env.reset() if self._root is None else self._root
        before, state = root.clone(), self.env.get_state()
        self.env.reset(state, set_state=True)
        self._root = root.clone()
        assert self.env.state is not None
        memory = dict(self.env.state.items())
        named = {f"root {name}": value for name, value in named_tensors(self._root).items()}
        if isinstance(self.policy, torch.nn.Module):
            named |= {f"policy {name}": value for name, value in self.policy.named_buffers()}
        # 2. Record; after a failure the collector is unchanged.
        try:
            captured = Captured(
                lambda: self._in_place(memory),
                lambda: named | memory,
                steps=CHECKED,
            )
        except CaptureError:
            self.env.reset(state, set_state=True)
            self._root = before
            raise
        # 3. Remember the state on which the graph works.
        self._state = self.env.state
        _LOGGER.info("policy and step are one CUDA graph; its first %d steps agree", CHECKED)
        return captured

    def _in_place(self, memory: Mapping[str, Tensor]) -> TensorDictBase:
        """Take a step that begins and ends in the same memory."""
        root = self._root
        assert root is not None
        # Copy the input, because the step may keep it.
        self._root = root.clone()
        transition = super().step()
        following, state = self._root, self.env.state
        assert state is not None
        # Write the next observation and state into the memory of the previous ones.
        for key in root.keys(True, True):
            root.get(key).copy_(following.get(key))
        self._root = root
        for key, value in memory.items():
            value.copy_(state[key])
            state.set(key, value)
        return transition
