"""Order lists as spreadsheets write them: semicolons, decimal commas, a column of weights."""

from pathlib import Path

import pytest

from packing_env.generators.cuboids.files import read_loads
from packing_env.generators.sequence_file import SequenceError, SequenceFile
from packing_env.planner import read_parts


def write(folder: Path, text: str) -> Path:
    path = folder / "order.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("text", ["Dx;DY;dz;count\n4,5;3;2;2\n", "4,5;3;2;2\n"])
def test_semicolons_and_decimal_commas(text: str, tmp_path: Path) -> None:
    (load,) = read_loads(write(tmp_path, text))
    assert [(kind.sides, kind.count) for kind in load.kinds] == [((4.5, 3.0, 2.0), 2)]


def test_a_column_of_weights_is_ignored_with_a_remark(tmp_path: Path) -> None:
    (load,) = read_loads(write(tmp_path, "name,dx,dy,dz,weight\na,4,3,2,1.5\n"))
    assert load.kinds[0].name == "a"
    assert "weight" in load.remark


def test_a_misspelt_column_gets_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(SequenceError, match="did you mean count"):
        read_loads(write(tmp_path, "dx;dy;dz;cuont\n4;3;2;1\n"))


def test_names_between_semicolons(tmp_path: Path) -> None:
    path = write(tmp_path, "mug;box\nbox;mug\n")
    assert SequenceFile(path)._read() == [["mug", "box"], ["box", "mug"]]


def test_orders_of_parts_between_semicolons(tmp_path: Path) -> None:
    path = write(tmp_path, "name;dx;dy;dz;quantity\na, b;40;30;20;3\n")
    (part,) = read_parts(path, "mm")
    assert (part.name, part.sides, part.quantity) == ("a, b", (40.0, 30.0, 20.0), 3)
