"""The subcommand ``doctor``: what is installed here, whether it works, and what would be slow."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

import torch

import agents
from agents.loggers.console import PlainConsole
from agents.training import runs
from packing_env import extras, folders, kernels, make_env, memory
from packing_env.kernels.backends import INTERPRETING
from packing_env.plan import check_plan, packing_of, save_plan

GOOD, MISSING, BAD = "ok", "--", "!!"
"""Marks of a finding: fine, something that is missing or slow, or a problem."""
_LITTLE_MEMORY = 2 * 2**30


@dataclass(frozen=True)
class Finding:
    """A line of the report: a mark, a fact and, for a problem, the remedy."""

    mark: str
    text: str


def doctor(options: argparse.Namespace) -> int:
    """Print the report; the exit code is 1 if something does not work."""
    console = PlainConsole()
    problems = 0
    sections = {
        "versions": _versions(),
        "devices": _devices(),
        "extras": _extras(),
        "kernels and caches": (*_kernels(), *_triton()),
        "memory and disk": _memory(),
        "names": _names(),
        f"self-test, {options.seconds:g} s": _self_test(options.seconds),
        "slow here": list(_slow_things()) or [Finding(GOOD, "nothing that doctor knows of")],
    }
    for title, findings in sections.items():
        console.print(title, style="bold")
        for finding in findings:
            problems += finding.mark == BAD
            console.say(f"  {finding.mark}  {finding.text}")
    console.print("all is well" if not problems else f"problems: {problems}, marked {BAD}")
    return 1 if problems else 0


def _versions() -> Iterator[Finding]:
    yield Finding(GOOD, ", ".join(f"{name} {v}" for name, v in runs.versions().items()))
    yield Finding(GOOD, f"{platform.platform()}, {Path(sys.executable)}")
    yield Finding(GOOD, f"packing_env in {Path(extras.__file__).parent}")


def _devices() -> Iterator[Finding]:
    hardware = runs.machine()
    yield Finding(
        GOOD,
        f"cpu: {hardware['processor']}, {hardware['usable_cores']} of {hardware['cores']} cores, "
        f"{hardware['torch_threads']} thread{'s' * (hardware['torch_threads'] > 1)}",
    )
    if not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built for CPUs"
        yield Finding(MISSING, f"cuda: no device is visible (torch is {built})")
    for index in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(index)
        yield Finding(GOOD, f"cuda:{index}: {gpu.name}, {memory.human(gpu.total_memory)}")


def _extras() -> Iterator[Finding]:
    for name, extra in extras.EXTRAS.items():
        missing = extra.missing
        if missing:
            lacks = f"without {', '.join(missing)}"
            yield Finding(MISSING, f"{name}: {extra.adds}; {lacks}: {extras.command(name)}")
        else:
            versions = ", ".join(f"{p} {_version(p)}" for p in map(extras.package, extra.modules))
            yield Finding(GOOD, f"{name}: {extra.adds} ({versions})")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "of unknown version"


def _kernels() -> Iterator[Finding]:
    try:
        backends = {"cpu": kernels.backend_for("cpu")}
        if torch.cuda.is_available():
            backends["cuda"] = kernels.backend_for("cuda")
    except ValueError as error:  # PACKING_KERNELS does not name a backend
        yield Finding(BAD, f"kernels: {error}")
        return
    chosen = ", ".join(f"{name} on {device}" for device, name in backends.items())
    yield Finding(GOOD, f"kernels: {chosen}")
    if backends["cpu"] == "numba":
        if _is_compiled():
            yield Finding(GOOD, "compiled kernels are on disk")
        else:
            yield Finding(
                MISSING, "kernels: the first step compiles them; packing warmup does it in advance"
            )
    try:
        folder = folders.own()
    except OSError as error:
        yield Finding(BAD, f"caches: {error}")
        return
    files = [file for file in folder.glob("*") if file.is_file()]
    size = memory.human(sum(file.stat().st_size for file in files))
    if os.access(folder, os.W_OK):
        yield Finding(GOOD, f"catalogues: {len(files)} files, {size} in {folder}")
    else:
        yield Finding(BAD, f"caches: {folder} cannot be written; set XDG_CACHE_HOME to another")


def _triton() -> Iterator[Finding]:
    if not extras.is_installed("triton") or INTERPRETING:
        return
    version = f"triton {_version('triton')}"
    try:
        yield Finding(GOOD, f"{version}: {_tried_kernel()}")
    except Exception as error:  # Triton, its compilers and its driver raise many types of errors
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        remedy = f"steps on CUDA use torch and are slower; {extras.command('triton')}"
        yield Finding(BAD, f"{version} does not compile the kernels ({reason}); {remedy}")


def _tried_kernel() -> str:
    """Run the drop-height kernel, or compile kernels if there is no GPU; return what was done."""
    if not torch.cuda.is_available():
        from packing_env.kernels.compiled.scene_triton import compile_ahead

        compile_ahead(90)
        return "compiles kernels (for sm_90; there is no GPU to run them on)"
    heightmap = torch.arange(64.0, device="cuda").reshape(1, 8, 8)
    bottom = torch.zeros(1, 1, 2, 3, device="cuda")
    one, other = (kernels.drop_height(heightmap, bottom, backend=b) for b in ("triton", "eager"))
    if not torch.equal(one, other):
        raise ValueError("the drop-height kernel gives other heights than torch")
    return f"kernels run on {torch.cuda.get_device_name()}"


def _is_compiled() -> bool:
    """Return whether the kernels of a step are on disk, compiled from these sources."""
    from packing_env.kernels.step import heights

    file = getattr(getattr(heights._decide, "_cache", None), "_cache_file", None)
    return file is not None and bool(file._load_index())


def _memory() -> Iterator[Finding]:
    devices = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    for device in devices:
        free = memory.free_memory(torch.device(device))
        if free is not None:
            mark = BAD if free < _LITTLE_MEMORY else GOOD
            yield Finding(mark, f"{device}: {memory.human(free)} free")
    disk = shutil.disk_usage(Path.cwd()).free
    mark = BAD if disk < 2**30 else GOOD
    yield Finding(mark, f"disk: {memory.human(disk)} free for runs in {Path.cwd()}")


def _names() -> Iterator[Finding]:
    """Yield other packages named ``agents``, such as that of OpenAI."""
    ours = Path(agents.__file__).resolve()
    owners = set(metadata.packages_distributions().get("agents", ())) - {"packing-env"}
    if owners:
        yield Finding(
            BAD,
            f"agents: {', '.join(sorted(owners))} has a package of the same name, and one of the "
            "two overwrites the other: use an environment without it",
        )
    here = [path for path in (Path("agents.py"), Path("agents/__init__.py")) if path.exists()]
    if here and here[0].resolve() != ours:
        yield Finding(
            BAD, f"agents: programs started in {Path.cwd()} import {here[0]}, not ours; rename it"
        )
    spec = util.find_spec("agents")
    if spec is None or spec.origin is None or Path(spec.origin).resolve() != ours:
        yield Finding(BAD, f"agents: Python finds {spec and spec.origin}, not {ours}")
    elif not owners and not here:
        yield Finding(GOOD, f"agents: {ours.parent}; no other package has this name")


def _self_test(seconds: float) -> Iterator[Finding]:
    """Play episodes and check their plans, without waiting for kernels to be compiled."""
    backend = kernels.backend_for("cpu")
    interpreted = backend == "numba" and not _is_compiled()
    if interpreted:
        kernels.set_backend("eager")
    try:
        yield _played("eager" if interpreted else backend, seconds)
    except Exception as error:  # report any error, because the user asked for the test
        yield Finding(BAD, f"{type(error).__name__}: {error}")
    finally:
        if interpreted:
            kernels.set_backend(None)


def _played(backend: str, seconds: float) -> Finding:
    # 1. A task with a few boxes.
    env = make_env(
        "irregular_com_hull",
        items={"source": "cuboids", "extents": [[0.04, 0.04, 0.02], [0.06, 0.04, 0.04]]},
        container=(0.12, 0.12, 0.1),
        cell=0.02,
        num_items=8,
        pool_size=8,
    )
    # 2. Play until the time is up, and check the plan of each episode.
    start, decisions, episodes = time.perf_counter(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.json"
        while not episodes or time.perf_counter() - start < seconds:
            decisions += env.rollout(env.params.step_limit).numel()  # random legal actions
            save_plan(plan, packing_of(env))
            report = check_plan(plan)
            if not report.holds:
                return Finding(BAD, f"a plan is wrong: {report.violation}")
            episodes += 1
    return Finding(
        GOOD,
        f"{episodes} episodes, {decisions} decisions with {backend} kernels, every plan is right",
    )


def _slow_things() -> Iterator[Finding]:
    if not torch.cuda.is_available():
        yield Finding(
            MISSING,
            "network=hrl_paper and env=irregular_paper with 24 orientations: an update takes "
            "seconds on a CPU; use network=hrl_small, or env.resolution=50",
        )
    if kernels.backend_for("cpu") != "numba":
        yield Finding(
            MISSING,
            f"steps on the CPU: about ten times slower without numba; {extras.command('fast')}",
        )
    usable = runs.machine()["usable_cores"]
    if torch.get_num_threads() < usable:
        threads = f"{torch.get_num_threads()} of {usable} cores"
        yield Finding(MISSING, f"networks: torch uses {threads}; see OMP_NUM_THREADS")
    if (load := os.getloadavg()[0]) > 1.5 * usable:
        yield Finding(MISSING, f"everything: other programs run here, load {load:.1f}")
