"""Reader of the files in which slicers name the objects of a 3MF package and mark their bodies."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

import numpy as np

from packing_env.items.meshes import limits
from packing_env.items.meshes.surface import damaged

FILES = ("metadata/slic3r_pe_model.config", "metadata/model_settings.config")
"""Files of PrusaSlicer, and of Bambu Studio and OrcaSlicer."""
MODEL_PART, NORMAL_PART = "ModelPart", "normal_part"
"""Words in these files for bodies that are solid."""
MODIFIER = ("modifier", "1")
"""Key and value with which older versions of PrusaSlicer, and Slic3r, mark modifiers."""

NOT_SOLID = tuple(f"cura:{kind}_mesh" for kind in ("infill", "cutting", "support", "anti_overhang"))
"""Settings with which Cura marks objects that are not solid, if their text is `True`."""


@dataclass
class Marks:
    """The name of an object, and which of its bodies are not solid.

    These are modifiers, supports, and negative volumes, which nothing here cuts out.

    Attributes:
        name: The name, or "".
        parts: Kinds of its components, by id, which several components may have.
        volumes: Kinds of its triangles that are not solid, by the first and the last of them.
    """

    name: str = ""
    parts: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    volumes: dict[tuple[int, int], str] = field(default_factory=dict)

    def without_volumes(self, faces: array[int], place: str) -> array[int]:
        """Return an object's triangles without its `volumes`.

        Raises:
            MeshError: A volume has triangles that the object does not have.
        """
        triangles = np.frombuffer(faces, np.int64).reshape(-1, 3)
        solid = np.ones(len(triangles), bool)
        for first, last in self.volumes:
            if not 0 <= first <= last < len(solid):
                what = f"{place} has {len(solid)} triangles, but a volume from {first} to {last}"
                raise damaged(what)
            solid[first : last + 1] = False
        return array("q", triangles[solid].tobytes())


def read(data: bytes) -> tuple[dict[str, Marks], str]:
    """Return the marks of objects, by id, and a warning if the rest of the file is damaged."""
    objects = defaultdict[str, Marks](Marks)
    marks, inside, first, last = Marks(), "", 0, -1
    try:
        for tag, attributes in limits.elements(data):
            key, value = attributes.get("key", ""), attributes.get("value", "")
            if tag == "object":
                marks, inside = objects[attributes.get("id", "")], ""
            elif tag == "part":
                inside, kind = tag, attributes.get("subtype", NORMAL_PART)
                marks.parts[attributes.get("id", "")].append(kind)
            elif tag == "volume":
                inside = tag
                first, last = (int(attributes.get(name, "")) for name in ("firstid", "lastid"))
            elif inside == "volume" and (
                (key == "volume_type" and value != MODEL_PART) or (key, value) == MODIFIER
            ):
                marks.volumes[first, last] = value if key == "volume_type" else key
            elif key == "name" and not inside:
                marks.name = marks.name or value
    except (expat.ExpatError, LookupError, ValueError) as error:
        damage = f"is damaged ({error}): bodies that it marks as not solid may be left in"
        return objects, damage
    return objects, ""


def cura_kind(attributes: Mapping[str, str]) -> str:
    """Return the setting of Cura in a `metadata` element if it marks a body that is not solid."""
    name, text = attributes.get("name", ""), attributes.get(limits.TEXT, "")
    return name if name in NOT_SOLID and text.strip() == "True" else ""
