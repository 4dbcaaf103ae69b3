"""TensorBoard, Weights & Biases and MLflow behind a queue, so that they never delay training."""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from agents.loggers.logging import CSVLogger, Logger
from agents.nested import leaves
from packing_env import extras
from packing_env.values import Count

_LOGGER = logging.getLogger("agents.loggers.telemetry")


class QueuedLogger:
    """A logger in a separate thread, which never delays training.

    Rows wait in a queue of fixed length. Rows are dropped and counted if the queue is full when
    they arrive, or if the logger fails on them. The logger is made, used and closed in its thread,
    because some loggers keep state per thread.

    Args:
        make: Function that builds the logger; the constructor raises its errors.
        size: Maximum number of rows in the queue.
        patience: Seconds that :meth:`close` waits for the queue to empty.
    """

    def __init__(
        self, make: Callable[[], Logger], *, size: int = 64, patience: float = 60.0
    ) -> None:
        if size < 1:
            raise ValueError(f"logger.queue_size={size} must be at least 1")
        self.patience = patience
        self._rows: queue.Queue[tuple[int, dict[str, float]] | None] = queue.Queue(size)
        self._given = self._refused = self._failed = 0  # each is counted in one thread only
        self._error: Exception | None = None
        self._closed = False
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._work, args=(make, started), name="telemetry", daemon=True
        )
        self._thread.start()
        started.result()

    @property
    def dropped(self) -> int:
        """Number of rows that the logger did not receive."""
        return self._refused + self._failed

    def log(self, frames: int, values: Mapping[str, float]) -> None:
        """Queue a row, or drop it; return immediately."""
        self._given += 1
        try:
            self._rows.put_nowait((frames, dict(values)))
        except queue.Full:
            self._refused += 1

    def close(self) -> None:
        """Wait up to ``patience`` seconds until every row is written; warn about dropped rows."""
        if self._closed:
            return
        self._closed = True
        until = time.monotonic() + self.patience
        with contextlib.suppress(queue.Full):
            self._rows.put(None, timeout=self.patience)
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():  # abandoned, together with the waiting rows
            self._refused += self._rows.qsize()
        if self.dropped:
            reason = f" ({type(self._error).__name__}: {self._error})" if self._error else ""
            _LOGGER.warning(
                "%d of %d rows of telemetry were dropped%s", self.dropped, self._given, reason
            )

    def _work(self, make: Callable[[], Logger], started: Future[None]) -> None:
        try:
            logger = make()
        except Exception as error:
            started.set_exception(error)
            return
        started.set_result(None)
        while (row := self._rows.get()) is not None:
            frames, values = row
            try:
                logger.log(frames, values)
            except Exception as error:  # an error of any backend: training continues
                self._failed += 1
                self._error = self._error or error
        logger.close()


class TorchRLLogger(Logger):
    """``metrics.csv``, and one of TorchRL's loggers (tensorboard, wandb, ...).

    Rows are written to the file immediately, so it remains intact if the run is killed. The other
    logger may wait for a network: its rows go through a :class:`QueuedLogger`. The column
    ``telemetry_dropped`` (from the first dropped row on) and a warning at the end report the number
    of dropped rows.

    Args:
        folder: The run folder; its name is used as the run's name.
        backend: A name for ``torchrl.record.loggers.get_logger``.
        queue_size: Maximum number of rows that wait for the other logger.
        **options: Passed to the backend.
    """

    def __init__(
        self, folder: Path, backend: str = "tensorboard", *, queue_size: Count = 64, **options: Any
    ) -> None:
        self.folder, self.backend, self.options = Path(folder), backend, options
        self._table = CSVLogger(self.folder)
        try:
            self._queue = QueuedLogger(self._build, size=queue_size)
        except ImportError as error:
            raise ValueError(
                f"logger={backend} needs a package that is missing ({error}); "
                f"pip install {backend}, or choose logger=csv"
            ) from error
        except Exception as error:  # for example no account, no network, or a wrong address
            raise ValueError(
                f"logger={backend} cannot start: {type(error).__name__}: {error}; "
                f"logger=csv needs no service"
            ) from error

    @staticmethod
    def check(backend: str = "tensorboard", **options: Any) -> None:
        """Raise ValueError if the backend's package is missing."""
        try:
            extras.check(backend, f"runs with logger={backend}")
        except extras.MissingPackageError as error:
            raise ValueError(f"{error}, or choose logger=csv") from None

    def _build(self) -> Logger:
        """Build the other logger, and give it the settings in the run's ``config.yaml``."""
        logger = self.make()
        file = self.folder / "config.yaml"
        if file.is_file():
            log_settings(logger, OmegaConf.load(file))
        return _Scalars(logger, self.finish)

    def make(self) -> Any:
        """Build TorchRL's logger."""
        from torchrl.record.loggers import get_logger

        name = self.backend if self.backend == "tensorboard" else self.folder.name
        own = {f"{self.backend}_kwargs": self.options} if self.options else {}
        return get_logger(self.backend, logger_name=str(self.folder), experiment_name=name, **own)

    def finish(self, logger: Any) -> None:
        """Flush and close TorchRL's logger."""
        logger.close()

    def log(self, frames: int, values: Mapping[str, float]) -> None:
        """Write a row to the file, and queue it for the other logger."""
        self._queue.log(frames, values)
        dropped = self._queue.dropped
        self._table.log(frames, {**values, "telemetry_dropped": dropped} if dropped else values)

    def resume(self, frames: int) -> None:
        """Continue the file; the other logger starts a new run at this number of frames."""
        self._table.resume(frames)

    def close(self) -> None:
        """Wait for the queue, and close both loggers."""
        self._queue.close()
        self._table.close()


METRICS = ("held_out/utilization", "utilization", "return", "loss")
"""Metrics by which TensorBoard compares runs."""


def log_settings(logger: Any, config: Any) -> None:
    """Write a run's settings by dotted keys; lists and null become text.

    For TensorBoard they are written into the run, where its page HPARAMS reads them.
    """
    settings = {
        key: value if isinstance(value, (bool, int, float, str)) else str(value)
        for key, value in leaves(config).items()
    }
    if type(logger).__name__ != "TensorboardLogger":
        logger.log_hparams(settings)
        return
    from torch.utils.tensorboard.summary import hparams

    # ``add_hparams`` would write them into a second run, without the curves.
    for summary in hparams(settings, dict.fromkeys(METRICS, 0)):
        logger.experiment._get_file_writer().add_summary(summary)


class MLflowLogger(TorchRLLogger):
    """``metrics.csv``, and TorchRL's logger for MLflow.

    Args:
        folder: The run folder.
        tracking_uri: Address of a server or a database; None means ``mlflow.db`` in the run folder.
        experiment: MLflow's name for a group of runs.
        queue_size: Maximum number of rows that wait for the other logger.
    """

    def __init__(
        self,
        folder: Path,
        *,
        tracking_uri: str | None = None,
        experiment: str = "packing",
        queue_size: Count = 64,
    ) -> None:
        self.tracking_uri, self.experiment = tracking_uri, experiment
        super().__init__(folder, "mlflow", queue_size=queue_size)

    @staticmethod
    def check(backend: str = "mlflow", **options: Any) -> None:
        """Raise ValueError if MLflow is missing."""
        TorchRLLogger.check(backend)

    def make(self) -> Any:
        """Build TorchRL's logger; ``get_logger`` would pass a folder, which MLflow 3 refuses."""
        from torchrl.record.loggers import MLFlowLogger

        uri = self.tracking_uri or f"sqlite:///{self.folder.absolute() / 'mlflow.db'}"
        artifacts = None if self.tracking_uri else (self.folder.absolute() / "artifacts").as_uri()
        return MLFlowLogger(self.experiment, uri, artifact_location=artifacts)

    def finish(self, logger: Any) -> None:
        """End MLflow's run, so that the process can start another."""
        logger.experiment.__exit__(None, None, None)


class _Scalars(Logger):
    """Adapter of TorchRL's loggers; rows contain their frames, so resuming needs no action."""

    def __init__(self, logger: Any, finish: Callable[[Any], None]) -> None:
        self.logger, self.finish = logger, finish

    def log(self, frames: int, values: Mapping[str, float]) -> None:
        numbers = {name: value for name, value in values.items() if not math.isnan(value)}
        self.logger.log_metrics(numbers, step=frames)

    def close(self) -> None:
        self.finish(self.logger)
