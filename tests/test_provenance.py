"""The arguments of measurements."""

import argparse

import pytest
from benchmarks.provenance import read_arguments


def test_overrides_may_stand_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("experiment")
    parser.add_argument("--seeds", type=int, nargs="+")
    words = ["a.py", "learn_cut1", "--seeds", "0", "1", "env.items=[a,b]", "--seeds=2", "x=3"]
    monkeypatch.setattr("sys.argv", words)
    args, overrides = read_arguments(parser)
    assert (args.experiment, args.seeds) == ("learn_cut1", [2])
    assert overrides == ["env.items=[a,b]", "x=3"]
    monkeypatch.setattr("sys.argv", ["a.py", "learn_cut1", "--sedes", "0"])
    with pytest.raises(SystemExit):
        read_arguments(parser)
