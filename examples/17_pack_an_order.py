"""Pack an order: parts with quantities, two sizes of container, files to look at and to check.

python examples/17_pack_an_order.py
"""

import tempfile
from pathlib import Path

import packing_env as pe
from packing_env.plan import check_plan
from packing_env.planner import save

ORDER = """name;dx;dy;dz;quantity
carton;60;40;30;6
flat;80;60;10;4
cube;40;40;40;5
"""


def main(seconds: float = 10.0, folder: str | None = None) -> float:
    place = Path(folder or tempfile.mkdtemp())
    # Semicolons, commas and tabs separate cells. An order of meshes names them in a column `file`.
    order = place / "order.csv"
    order.write_text(ORDER, encoding="utf-8")

    # The smallest container that holds everything is used, or several if none holds everything.
    sizes = ["160x120x80mm", "240x180x100mm"]
    plan = pe.pack(order, sizes, seconds, cell="10mm", containers=2)
    for packing in plan.containers:
        sides = " x ".join(f"{1e3 * side:.0f}" for side in packing.container)
        print(f"{sides} mm: {len(packing.items)} parts, {100 * packing.utilization:.1f} %")
    for part in plan.left:
        print(f"left over: {part.quantity} x {part.name}, {part.reason}")

    files = save(plan, place / "packed")
    print(f"{place / 'packed'}: {', '.join(file.name for file in files)}")
    assert all(check_plan(file).holds for file in files if file.suffix == ".json")
    return plan.utilization


if __name__ == "__main__":
    main()
