"""`packing doctor` reports installed and missing extras, and names that clash."""

from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
from tests.tiny import play_by_the_rules

from agents.cli import main as cli
from packing_env import extras, kernels
from packing_env.kernels.backends import INTERPRETING
from packing_env.plan import check_plan

pytestmark = pytest.mark.usefixtures("elsewhere")


def report(capsys) -> tuple[int, dict[str, list[str]]]:
    """The exit code, and the lines of each section."""
    code = cli.main(["doctor", "--seconds", "0.1"])
    sections: dict[str, list[str]] = {}
    for line in capsys.readouterr().out.splitlines():
        if line.startswith("  "):
            sections[title].append(line.strip())
        else:
            title = line
            sections[title] = []
    return code, sections


def test_it_names_versions_devices_kernels_and_packs(capsys, monkeypatch):
    monkeypatch.setattr("agents.cli.doctor._LITTLE_MEMORY", 0)
    code, sections = report(capsys)
    assert code == 0
    assert "all is well" in sections
    titles = ["versions", "devices", "extras", "kernels and caches", "memory and disk", "names"]
    assert list(sections)[:6] == titles
    assert "torch 2" in sections["versions"][0]
    assert sections["devices"][0].startswith("ok  cpu:")
    assert any("plan is right" in line for line in sections["self-test, 0.1 s"])
    assert f"kernels: {kernels.backend_for('cpu')} on cpu" in sections["kernels and caches"][0]


@pytest.mark.parametrize("name", sorted(extras.EXTRAS))
def test_each_extra_with_and_without(name, monkeypatch):
    """A patch decides which modules count as installed, whatever this machine has."""
    from agents.cli import doctor

    extra = extras.EXTRAS[name]
    sharing = {key for key, e in extras.EXTRAS.items() if {*e.modules} & {*extra.modules}}
    monkeypatch.setattr(extras, "is_installed", lambda module: module in extra.modules)
    there = {f.text.partition(":")[0]: f for f in doctor._extras()}
    assert {key for key, finding in there.items() if finding.mark == doctor.GOOD} == {name}
    monkeypatch.setattr(extras, "is_installed", lambda module: module not in extra.modules)
    lacking = {f.text.partition(":")[0]: f for f in doctor._extras()}
    assert {key for key, finding in lacking.items() if finding.mark != doctor.GOOD} == sharing
    assert f'pip install "packing-env[{name}]"' in lacking[name].text
    for module in extra.modules:
        assert extras.package(module) in lacking[name].text


def test_without_numba_it_still_packs_and_says_what_is_slow(capsys, monkeypatch):
    play_by_the_rules(monkeypatch)
    monkeypatch.setattr("agents.cli.doctor._LITTLE_MEMORY", 0)
    kernels.set_backend("eager")
    code, sections = report(capsys)
    assert code == 0
    assert "kernels: eager on cpu" in sections["kernels and caches"][0]
    assert any("numba" in line for line in sections["slow here"])


def test_other_packages_of_the_name_and_a_plan_that_does_not_hold_are_problems(capsys, monkeypatch):
    def broken(path):
        return replace(check_plan(path), violation="z is wrong")

    owners = {"agents": ["packing-env", "openai-agents"]}
    monkeypatch.setattr(metadata, "packages_distributions", lambda: owners)
    monkeypatch.setattr("agents.cli.doctor.check_plan", broken)
    Path("agents.py").touch()
    code, sections = report(capsys)
    assert code == 1
    assert "openai-agents" in sections["names"][0]
    assert "agents.py" in sections["names"][1]
    assert any("z is wrong" in line for line in sections["self-test, 0.1 s"])
    assert "problems: 3, marked !!" in sections


needs_triton = pytest.mark.skipif(
    not extras.is_installed("triton") or INTERPRETING, reason="Triton is not installed"
)


@needs_triton
@pytest.mark.filterwarnings("ignore")
def test_a_kernel_is_compiled_and_the_version_named(monkeypatch, tmp_path):
    from agents.cli import doctor

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    (finding,) = doctor._triton()
    assert finding.mark == doctor.GOOD
    assert metadata.version("triton") in finding.text
