"""Folders of meshes with numbered sequences, as in the data sets of Zhao et al., TOG 2023."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trimesh

from packing_env import PackingEnv, make_env
from packing_env.generators.sequence_file import SequenceError

SHAPES = {0: "block_0.obj", 1: "block_1.obj", 2: "corner_0.obj"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of two shapes, one of them in two poses, as convex parts that overlap."""
    folder = tmp_path_factory.mktemp("blockout")
    meshes = folder / "shape_vhacd"
    meshes.mkdir()
    trimesh.creation.box((0.12, 0.06, 0.06)).export(meshes / "block_0.obj")
    trimesh.creation.box((0.06, 0.06, 0.12)).export(meshes / "block_1.obj")
    parts = trimesh.creation.box((0.12, 0.06, 0.06)), trimesh.creation.box((0.06, 0.06, 0.12))
    parts[1].apply_translation((-0.03, 0.0, 0.03))
    trimesh.util.concatenate(parts).export(meshes / "corner_0.obj")
    torch.save(SHAPES, folder / "id2shape.pt")
    return folder


def play(folder: Path, path: Path) -> PackingEnv:
    return make_env(
        "irregular_com_hull",
        items={"source": "meshes", "paths": str(folder / "shape_vhacd"), "use_cache": False},
        generator={"name": "sequence_file", "path": str(path)},
        orientations="yaw",
        grid_step=2,
        draw="sequential",
    )


SEQUENCES = {
    "lists.pt": [[2, 0], [1, 2, 0]],
    "numpy.pt": [[np.int64(2), np.int64(0)], [np.int64(1), np.int64(2), np.int64(0)]],
    "lists.json": [[2, 0], [1, 2, 0]],
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_numbers_refer_to_the_listed_files(name: str, folder: Path) -> None:
    path = folder / name
    if path.suffix == ".json":
        path.write_text(json.dumps(SEQUENCES[name]))
    else:
        torch.save(SEQUENCES[name], path)
    env = play(folder, path)
    assert list(env.catalogue.names) == ["block_0", "block_1", "corner_0"]
    assert env.instances.item_id[:, :3].tolist() == [[2, 0, 0], [1, 2, 0]]
    assert env.instances.num_items.tolist() == [2, 3]
    # The parts of a corner overlap in a cube of 6 cm.
    assert env.catalogue.volume.tolist() == pytest.approx([4.32e-4, 4.32e-4, 6.48e-4], rel=1e-3)


@pytest.mark.parametrize("made", [torch.tensor([[2, 0]]), np.array([[2, 0]])], ids=["torch", "np"])
def test_sequences_may_be_a_tensor(made: Any, folder: Path) -> None:
    torch.save(made, folder / "tensor.pt")
    assert play(folder, folder / "tensor.pt").instances.item_id[:, :2].tolist() == [[2, 0]]


def test_a_file_of_torch_cannot_execute_code(folder: Path, tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "executed",)

    torch.save([[Attack()]], folder / "attack.pt")
    (folder / "plain.pt").write_bytes(pickle.dumps([[Attack()]], protocol=2))
    for name in ("attack.pt", "plain.pt"):
        with pytest.raises(SequenceError, match=name):
            play(folder, folder / name)
    assert not (tmp_path / "executed").exists()


def test_an_unlisted_number_is_named(folder: Path) -> None:
    torch.save([[0, 7]], folder / "unlisted.pt")
    with pytest.raises(SequenceError, match=r"sequence 0 .*7"):
        play(folder, folder / "unlisted.pt")


@pytest.mark.parametrize(
    "content", [b"hello world", b"", b"\x80\x02"], ids=["text", "empty", "cut"]
)
def test_a_file_that_is_not_of_torch_is_named(content: bytes, folder: Path) -> None:
    (folder / "broken.pt").write_bytes(content)
    with pytest.raises(SequenceError, match=r"broken\.pt"):
        play(folder, folder / "broken.pt")


@pytest.mark.parametrize("shapes", [{"one": "block_0.obj"}, {"1": ""}, {"1": 5}])
def test_a_list_of_shapes_without_numbers_or_names_is_named(shapes: Any, tmp_path: Path) -> None:
    (tmp_path / "id2shape.json").write_text(json.dumps(shapes))
    (tmp_path / "lists.json").write_text("[[1]]")
    path = tmp_path / "lists.json"
    with pytest.raises(SequenceError, match=r"id2shape\.json"):
        make_env("irregular", generator={"name": "sequence_file", "path": str(path)})


def test_a_tensor_of_another_device_is_read(folder: Path) -> None:
    torch.save(torch.tensor([[2, 0]]), folder / "cpu.pt")
    path, pickled = folder / "cuda.pt", b"X\x03\x00\x00\x00cpu"
    with zipfile.ZipFile(folder / "cpu.pt") as source, zipfile.ZipFile(path, "w") as target:
        for entry in source.namelist():
            data = source.read(entry)
            assert entry.endswith("data.pkl") == (pickled in data)
            target.writestr(entry, data.replace(pickled, b"X\x06\x00\x00\x00cuda:0"))
    assert play(folder, path).instances.item_id[:, :2].tolist() == [[2, 0]]
