"""Loggers: a slow or broken one delays nothing; what it misses is counted; none is required."""

import csv
import math
import threading
import time

import pytest

from agents.loggers.curve import save_curve
from agents.loggers.telemetry import QueuedLogger, TorchRLLogger


class Slow:
    """A logger that waits while its gate is closed, sleeps at every row, and keeps the rows."""

    def __init__(self, fail=(), seconds=0.0):
        self.fail, self.seconds = fail, seconds
        self.rows, self.closed = [], False
        self.threads = {threading.current_thread().name}
        self.gate = threading.Event()
        self.gate.set()

    def log(self, frames, values):
        self.threads.add(threading.current_thread().name)
        self.gate.wait()
        time.sleep(self.seconds)
        if frames in self.fail:
            raise ConnectionError(f"no network at {frames}")
        self.rows.append((frames, dict(values)))

    def close(self):
        self.threads.add(threading.current_thread().name)
        self.closed = True


def queued(slow, **options):
    return QueuedLogger(lambda: slow, **options)


def test_a_slow_logger_delays_nobody_and_gets_every_row():
    slow = Slow()
    slow.gate.clear()
    logger = queued(slow, size=20)
    for frames in range(10):
        logger.log(frames, {"loss": frames / 10})
    assert not slow.rows
    slow.gate.set()
    logger.close()
    assert slow.rows == [(frames, {"loss": frames / 10}) for frames in range(10)]
    assert slow.closed
    assert logger.dropped == 0
    logger.close()  # again: nothing


def test_a_logger_that_fails_does_not_stop_training(caplog):
    slow = Slow(fail=(1, 3))
    logger = queued(slow)
    for frames in range(5):
        logger.log(frames, {})
    logger.close()
    assert [frames for frames, _ in slow.rows] == [0, 2, 4]
    assert logger.dropped == 2
    assert "2 of 5 rows of telemetry were dropped (ConnectionError: no network at 1)" in caplog.text
    assert slow.closed


def test_a_logger_that_hangs_is_left_behind(caplog):
    slow = Slow()
    slow.gate.clear()
    logger = queued(slow, size=8, patience=0.1)
    for frames in range(4):
        logger.log(frames, {})
    logger.close()
    assert not slow.rows
    assert not slow.closed
    assert logger.dropped >= 3
    assert "rows of telemetry were dropped" in caplog.text
    slow.gate.set()


class Backend(Slow):
    """A stand-in for TorchRL's loggers."""

    def log_metrics(self, values, step):
        self.log(step, values)


def test_the_table_is_complete_whatever_the_backend_misses(tmp_path, monkeypatch):
    backend, made = Backend(), {}
    backend.gate.clear()

    def get_logger(kind, **options):
        made.update(options, kind=kind)
        return backend

    monkeypatch.setattr("torchrl.record.loggers.get_logger", get_logger)
    folder = tmp_path / "run-7"
    folder.mkdir()
    logger = TorchRLLogger(folder, "wandb", queue_size=1, project="boxes", offline=True)
    assert made["kind"] == "wandb"
    assert made["logger_name"] == str(folder)
    assert made["experiment_name"] == "run-7"
    assert made["wandb_kwargs"] == {"project": "boxes", "offline": True}
    for frames in range(5):
        logger.log(frames, {"loss": 0.5, "return": math.nan})
    backend.gate.set()
    logger.close()
    assert backend.closed
    rows = list(csv.DictReader((folder / "metrics.csv").read_text().splitlines()))
    assert [int(row["frames"]) for row in rows] == list(range(5))
    lost = int(rows[-1]["telemetry_dropped"])
    assert lost in (3, 4)  # one or none was taken out of the queue before the others came
    assert len(backend.rows) == 5 - lost
    assert all(values == {"loss": 0.5} for _, values in backend.rows)  # NaN is no number


def test_tensorboard_shows_the_settings_of_a_run(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2

    (tmp_path / "config.yaml").write_text("seed: 3\nagent: {lr: 0.01}\n")
    logger = TorchRLLogger(tmp_path, "tensorboard")
    logger.log(8, {"loss": 0.5})
    logger.close()
    (events,) = tmp_path.rglob("events.*")
    read = EventAccumulator(str(events)).Reload()
    stored = read.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    settings = plugin_data_pb2.HParamsPluginData.FromString(stored).session_start_info.hparams
    assert settings["seed"].number_value == 3
    assert settings["agent.lr"].number_value == 0.01


def test_the_curve_shows_the_heuristics_as_lines(tmp_path, monkeypatch):
    figure = pytest.importorskip("matplotlib.axes")
    (tmp_path / "metrics.csv").write_text("frames,utilization,loss\n10,0.2,1.0\n20,0.3,0.5\n")
    drawn = []
    monkeypatch.setattr(figure.Axes, "axhline", lambda axes, y, **k: drawn.append((y, k["label"])))
    levels = {"random_legal": 0.22, "lowest_z": 0.3}
    assert save_curve(tmp_path / "metrics.csv", tmp_path / "curve.png", "run", levels)
    assert drawn == [(0.22, "random_legal"), (0.3, "lowest_z")]  # in the panel of utilization alone
