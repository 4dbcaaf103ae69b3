"""Two minutes of coverage-guided fuzzing; benchmarks/fuzz_readers.py takes longer."""

from pathlib import Path

import pytest
from benchmarks.fuzz_readers import MESHES, SEQUENCES, fuzz

SECONDS = 120
FORMATS = (*MESHES, *SEQUENCES)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_a_reader_refuses_invalid_files(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader raises only ``MeshError`` or ``SequenceError``, within 20 s and 8 GiB."""
    pytest.importorskip("atheris", reason="fuzzing needs atheris: pip install atheris")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = fuzz(form, SECONDS // len(FORMATS), tmp_path)
    kept = [path.read_bytes() for path in (tmp_path / form / "found").iterdir()]
    assert (found["exit_code"], kept) == (0, []), found["reason"]
    assert found["inputs"] > 50
    assert found["branches_covered"]
