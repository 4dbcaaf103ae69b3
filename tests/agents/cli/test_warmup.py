"""The subcommand ``warmup``, and the notice that kernels are being compiled."""

import os
import subprocess
from pathlib import Path

import pytest

from agents.cli import main as cli
from agents.cli import warmup
from packing_env import PackingEnv, kernels

NUMBA = "numba" in kernels.available_backends()
needs_numba = pytest.mark.skipif(not NUMBA, reason="numba is not installed")
NOTICE = "compiling kernels for this machine"


def in_process(python: Path, program: str, cache: Path) -> str:
    """Run a program whose only cache of machine code is ``cache``; return its messages."""
    places = {"NUMBA_CACHE_DIR": str(cache / "numba"), "XDG_CACHE_HOME": str(cache)}
    # numba was imported in another environment.
    program = f"from numba.core import config; config.reload_config()\n{program}"
    done = subprocess.run(
        [python, "-c", program], env={**os.environ, **places}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@needs_numba
def test_each_preset_gets_a_line_with_its_seconds(monkeypatch, capsys) -> None:
    """Here one mode is played; `test_after_a_warmup_nothing_is_compiled` plays all."""
    played: list[PackingEnv] = []
    play = warmup.play
    monkeypatch.setattr(warmup, "play", played.append)
    assert cli.main(["warmup", "cuboid_online", "cuboid_continuous"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for line, said in zip(lines, ("cuboid_online", "cuboid_continuous", "2 presets"), strict=True):
        assert said in line
        assert line.endswith(" s")
    modes = [env.params.action_mode for env in played]
    assert sorted(modes[:-1]) == sorted(warmup.MODES)
    assert modes[-1] == "candidate"
    play(played[0])


def test_bad_requests_name_the_remedy(monkeypatch, capsys) -> None:
    assert cli.main(["warmup", "irregulra"]) == 2
    assert "'irregulra' is unknown, did you mean irregular" in capsys.readouterr().err
    monkeypatch.setattr(kernels, "backend_for", lambda device: "eager")
    assert cli.main(["warmup"]) == 2
    assert "install numba" in capsys.readouterr().err


@needs_numba
def test_the_first_compilation_is_announced_once(tmp_path: Path, python: Path) -> None:
    program = (
        "import torch; from packing_env import kernels\n"
        "mask, draw = torch.ones(2, 5, dtype=torch.bool), torch.rand(2, dtype=torch.float64)\n"
        "kernels.choose_uniform(mask, draw)\n"
        "kernels.choose_uniform(mask[None], draw[None])\n"
    )
    other = "kernels.choose_epsilon_greedy(torch.rand(2, 5), mask, draw, draw, draw)\n"
    said = in_process(python, program, tmp_path)
    assert said.count(NOTICE) == 1
    assert "`packing warmup`" in said
    assert "kernels.choice" in said  # what is compiled
    # The second process finds the first kernel, and compiles another one for the same cache.
    assert NOTICE not in in_process(python, program + other, tmp_path)


@needs_numba
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_after_a_warmup_nothing_is_compiled(tmp_path: Path, python: Path) -> None:
    """Play every preset in its own mode and size, and a heuristic, in new processes."""
    command = "import sys; from agents.cli.main import main; sys.exit(main(['warmup']))"
    in_process(python, command, tmp_path)
    program = (
        "from agents import build_policy, heuristics; from packing_env import PRESETS, make_env\n"
        "from packing_env.kernels import compile_seconds\n"
        "for name in PRESETS:\n"
        "    env = make_env(name, num_envs=3, pool_size=32)\n"
        "    env.rollout(4, break_when_any_done=False)\n"
        "    env.rollout(2, heuristics.build('lowest_z', env), break_when_any_done=False)\n"
        "    if name in ('irregular', 'cuboid_online'):\n"
        "        env.rollout(2, build_policy('afterstate', env), break_when_any_done=False)\n"
        "from packing_env.plan import BoxType, load_boxes\n"
        "assert load_boxes((9, 9, 9), [BoxType([(4, 3, 2), (3, 4, 2)], 40)], seconds=0.5)\n"
        "assert compile_seconds() == 0\n"
    )
    in_process(python, program, tmp_path)
