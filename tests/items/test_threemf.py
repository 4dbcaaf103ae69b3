"""Tests of 3MF: objects of several model files, components, transforms, units, extensions."""

import zipfile
from pathlib import Path

import pytest
from tests.mesh_files import CORE, CORNERS, PRODUCTION, box_3mf, model_3mf, write_3mf

from packing_env.items import Catalogue, MeshError, load_mesh
from packing_env.items.meshes.formats.threemf import build_items

SMALL, LARGE = (30, 20, 10), (40, 20, 10)
VOLUME_SMALL, VOLUME_LARGE = 6000, 8000
A, B = "3D/Objects/a.model", "3D/Objects/b.model"


def component(number: int, file: str = "", at: str = "") -> str:
    path = f'p:path="/{file}" ' if file else ""
    moved = f'transform="1 0 0 0 1 0 0 0 1 {at}"' if at else ""
    return f'<component {path}objectid="{number}" {moved}/>'


def item(number: int, file: str = "", at: str = "") -> str:
    return component(number, file, at).replace("<component", "<item")


def assembly(number: int, *components: str) -> str:
    return f'<object id="{number}"><components>{"".join(components)}</components></object>'


@pytest.fixture
def package(tmp_path: Path):
    """Write a package of a root and two files that both have an object 1."""

    def write(objects: str, items: str, **models: str) -> Path:
        files = {
            "3D/3dmodel.model": model_3mf(objects, items),
            A: model_3mf(box_3mf(1, SMALL), item(1)),
            B: model_3mf(box_3mf(1, LARGE), item(1)),
        }
        return write_3mf(tmp_path / "p.3mf", files | models)

    return write


def check(path: Path, volume: float, extents: tuple[float, ...], components: int) -> None:
    mesh = load_mesh(path)
    assert mesh.source.unit == "mm"
    assert mesh.volume * 1e9 == pytest.approx(volume)
    assert (mesh.extents * 1e3).tolist() == pytest.approx(extents)
    separate = f"{components} separate components, kept as one rigid item"
    assert mesh.warnings == ((separate,) if components > 1 else ())


def test_an_id_is_of_its_model_file(package) -> None:
    objects = assembly(5, component(1, A)) + assembly(6, component(1, B, "0 0 20"))
    path = package(objects, item(5) + item(6))
    check(path, VOLUME_SMALL + VOLUME_LARGE, (40, 20, 30), 2)
    catalogue = Catalogue.from_meshes([path], cell=0.01, container=(0.1, 0.1, 0.1), use_cache=False)
    assert catalogue.volume.tolist() == pytest.approx([14e-6])


def test_bodies_that_touch_stay_apart(package) -> None:
    path = package("", item(1, A) + item(1, A, "0 0 10") + item(1, A, "30 0 0"))
    check(path, 3 * VOLUME_SMALL, (60, 20, 20), 3)


def test_components_of_components_are_moved_by_all_transforms(package) -> None:
    inner = assembly(7, component(1, A, "100 0 0"), component(1, B, "0 100 0"))
    path = package(inner + assembly(8, component(7, at="0 0 5"), component(1, A)), item(8))
    check(path, 2 * VOLUME_SMALL + VOLUME_LARGE, (130, 120, 15), 3)


def test_a_model_file_may_have_components_of_its_own(package) -> None:
    nested = model_3mf(box_3mf(1, SMALL) + assembly(2, component(1), component(1, at="0 0 30")))
    path = package(assembly(1, component(2, A)), item(1), **{A: nested})
    check(path, 2 * VOLUME_SMALL, (30, 20, 40), 2)


def test_a_transform_turns_scales_and_mirrors(package) -> None:
    turned = f'<item objectid="1" p:path="/{A}" transform="0 2 0 1 0 0 0 0 1 0 0 0"/>'
    check(package("", turned), 2 * VOLUME_SMALL, (20, 60, 10), 1)


def test_units_of_model_files_are_converted(package) -> None:
    inches = model_3mf(
        box_3mf(1, [side / 25.4 for side in LARGE]) + assembly(2, component(1, at="0 0 2")),
        attributes='unit="inch"',
    )
    bare = model_3mf(box_3mf(1, SMALL), attributes="")
    path = package("", item(2, B) + item(1, A), **{A: bare, B: inches})
    check(path, VOLUME_SMALL + VOLUME_LARGE, (40, 20, 60.8), 2)


def test_names_of_files_do_not_depend_on_case_or_escapes(package) -> None:
    spaced = model_3mf(box_3mf(1, SMALL))
    path = package(
        "", item(1, "3d/objects/my%20part.MODEL"), **{"3D/Objects/my part.model": spaced}
    )
    check(path, VOLUME_SMALL, SMALL, 1)


def test_the_root_is_the_file_that_the_package_names(tmp_path: Path) -> None:
    other = model_3mf(box_3mf(1, LARGE), item(1))
    models = {"3D/build.model": model_3mf(box_3mf(1, SMALL), item(1)), "3D/3dmodel.model": other}
    check(write_3mf(tmp_path / "p.3mf", models), VOLUME_SMALL, SMALL, 1)
    with zipfile.ZipFile(tmp_path / "q.3mf", "w") as archive:  # it names none
        archive.writestr("3D/3dmodel.model", other)
    check(tmp_path / "q.3mf", VOLUME_LARGE, LARGE, 1)


@pytest.mark.parametrize(
    ("objects", "items", "message"),
    [
        ("", item(1, "3D/none.model"), "no model file '3d/none.model'"),
        ("", item(9, A), "object 9 of 3d/objects/a.model"),
        (assembly(1, component(3)), item(1), "object 3 of 3d/3dmodel.model"),
        (box_3mf(1, SMALL) * 2, item(1), "object 1 .*occurs twice"),
        (box_3mf(1, SMALL).replace('v3="7"', 'v3="8"'), item(1), "object 1 of .* outside 0..7"),
        (box_3mf(1, SMALL).replace('x="30"', 'x="wide"'), item(1), "object 1 of .*'wide'"),
        (box_3mf(1, SMALL), item(1, at="0 0"), "the build of"),
        (box_3mf(1, SMALL), "", "build has no items"),
    ],
)
def test_broken_packages_are_named(package, objects: str, items: str, message: str) -> None:
    with pytest.raises(MeshError, match=message) as caught:
        load_mesh(package(objects, items))
    assert "p.3mf" in str(caught.value)


@pytest.mark.parametrize(
    ("space", "supported"),
    [
        (PRODUCTION, True),
        ("http://schemas.microsoft.com/3dmanufacturing/material/2015/02", True),
        ("http://schemas.microsoft.com/3dmanufacturing/beamlattice/2017/02", False),
    ],
)
def test_required_extensions(tmp_path: Path, space: str, supported: bool) -> None:
    asked = f'unit="millimeter" xmlns:e="{space}" requiredextensions="e"'
    model = model_3mf(box_3mf(1, SMALL), item(1), asked)
    path = write_3mf(tmp_path / "e.3mf", {"3D/3dmodel.model": model})
    if supported:
        check(path, VOLUME_SMALL, SMALL, 1)
    else:
        with pytest.raises(MeshError, match=space):
            load_mesh(path)


SLICE = "http://schemas.microsoft.com/3dmanufacturing/slice/2015/07"


def test_elements_and_attributes_of_other_extensions_are_not_read(tmp_path: Path) -> None:
    stack = (
        '<s:slicestack id="1"><s:slice ztop="1"><s:vertices><s:vertex x="9" y="9"/></s:vertices>'
        '</s:slice></s:slicestack><s:object id="1"/>'
    )
    asked = f'unit="millimeter" s:unit="mile" xmlns:s="{SLICE}"'
    moved = (
        '<item objectid="1" s:objectid="4" s:path="/none" s:transform="9"/><s:item objectid="5"/>'
    )
    inside = box_3mf(1, SMALL).replace("</mesh>", "</mesh>" + stack)
    model = model_3mf(stack + inside, moved, asked)
    check(write_3mf(tmp_path / "s.3mf", {"3D/3dmodel.model": model}), VOLUME_SMALL, SMALL, 1)


def test_a_model_may_have_no_namespace_or_a_prefix(tmp_path: Path) -> None:
    plain = model_3mf(box_3mf(1, SMALL), item(1))
    bare = plain.replace(f'xmlns="{CORE}"', "")
    check(write_3mf(tmp_path / "n.3mf", {"3D/3dmodel.model": bare}), VOLUME_SMALL, SMALL, 1)
    named = plain.replace("xmlns=", "xmlns:c=").replace("</", "</c:").replace("<", "<c:")
    named = named.replace("<c:/c:", "</c:").replace("<c:?", "<?")
    check(write_3mf(tmp_path / "c.3mf", {"3D/3dmodel.model": named}), VOLUME_SMALL, SMALL, 1)


def typed(number: int, kind: str) -> str:
    return box_3mf(number, LARGE).replace('type="model"', f'type="{kind}"')


@pytest.mark.parametrize("kind", ["support", "surface", "other"])
def test_objects_that_are_not_solid_are_left_out_with_a_warning(package, kind: str) -> None:
    objects = box_3mf(1, SMALL) + typed(2, kind) + assembly(3, component(1), component(2))
    check(package(objects, item(1)), VOLUME_SMALL, SMALL, 1)  # no word of what the build lacks
    for items in (item(1) + item(2) + item(2, at="0 0 50"), item(3)):
        mesh = load_mesh(package(objects, items))
        assert mesh.volume * 1e9 == pytest.approx(VOLUME_SMALL)
        (warning,) = mesh.warnings
        assert "object 2 of 3d/3dmodel.model" in warning
        assert repr(kind) in warning
    with pytest.raises(MeshError, match=f"object 2 of .*'{kind}'"):
        load_mesh(package(objects, item(2)))
    with pytest.raises(MeshError, match="strict"):
        load_mesh(package(objects, item(3)), strict=True)


def test_solid_supports_are_solid(package) -> None:
    objects = box_3mf(1, SMALL) + typed(2, "solidsupport")
    check(
        package(objects, item(1) + item(2, at="0 0 10")),
        VOLUME_SMALL + VOLUME_LARGE,
        (40, 20, 20),
        2,
    )


def two_boxes(number: int) -> str:
    """An object whose mesh is a small box, and a large one around it."""
    moved, count = box_3mf(number, (80, 60, 50)), len(CORNERS)
    for v in ("v1", "v2", "v3"):
        for corner in reversed(range(count)):
            moved = moved.replace(f'{v}="{corner}"', f'{v}="{corner + count}"')
    for what in ("vertices", "triangles"):
        inner = box_3mf(number, SMALL).partition(f"<{what}>")[2].partition(f"</{what}>")[0]
        moved = moved.replace(f"<{what}>", f"<{what}>{inner}")
    return moved


PRUSA = """<config><object id="1"><metadata type="object" key="name" value="lid"/>
<volume firstid="0" lastid="11"><metadata type="volume" key="volume_type" value="ModelPart"/>
<metadata type="volume" key="name" value="body"/></volume>
<volume firstid="12" lastid="23"><metadata type="volume" key="volume_type" value="{kind}"/></volume>
</object></config>"""
BAMBU = """<config><object id="5"><metadata key="name" value="lid"/>
<part id="1" subtype="normal_part"><metadata key="name" value="body"/></part>
<part id="2" subtype="{kind}"/></object></config>"""


SLIC3R, BAMBU_STUDIO = "Metadata/Slic3r_PE_model.config", "Metadata/model_settings.config"


@pytest.mark.parametrize(
    ("file", "settings", "kind"),
    [
        *((SLIC3R, PRUSA, k) for k in ("ParameterModifier", "SupportBlocker", "NegativeVolume")),
        *((BAMBU_STUDIO, BAMBU, k) for k in ("modifier_part", "support_blocker", "negative_part")),
    ],
)
def test_triangles_and_parts_that_slicers_mark_are_left_out(
    package, file: str, settings: str, kind: str
) -> None:
    """PrusaSlicer marks triangles of a mesh; Bambu Studio and Orca mark components."""
    models = {file: settings.format(kind=kind)}
    if file == SLIC3R:
        path = package(two_boxes(1), item(1), **models)
    else:
        models[A] = model_3mf(box_3mf(1, SMALL) + box_3mf(2, (80, 60, 50)))
        path = package(assembly(5, component(1, A), component(2, A)), item(5), **models)
    mesh = load_mesh(path)
    assert (mesh.extents * 1e3).tolist() == pytest.approx(SMALL)
    assert mesh.volume * 1e9 == pytest.approx(VOLUME_SMALL)
    (warning,) = mesh.warnings
    assert kind in warning
    assert [part.name for part in build_items(path.read_bytes())] == ["lid"]


BODY, AROUND = "firstid='0' lastid='11'", "firstid='12' lastid='23'"


def volume(triangles: str, value: str, key: str = "volume_type") -> str:
    return f'<volume {triangles}><metadata type="volume" key="{key}" value="{value}"/></volume>'


def prusa(*volumes: str) -> str:
    return f'<config><object id="1">{"".join(volumes)}</object></config>'


@pytest.mark.parametrize(
    "volumes",
    [
        prusa(volume(AROUND, "ParameterModifier"), volume(BODY, "ModelPart")),
        prusa(*[volume(AROUND, "ParameterModifier")] * 2),
        prusa(volume(AROUND, "1", "modifier"), volume(BODY, "0", "modifier")),
        prusa(volume("firstid='18' lastid='23'", "X"), volume("firstid='12' lastid='17'", "X")),
        prusa('<metadata key="modifier" value="1"/>', volume(AROUND, "X")),  # of the whole object
    ],
)
def test_volumes_may_be_repeated_and_in_any_order(package, volumes: str) -> None:
    mesh = load_mesh(package(two_boxes(1), item(1), **{SLIC3R: volumes}))
    assert (mesh.extents * 1e3).tolist() == pytest.approx(SMALL)


@pytest.mark.parametrize("triangles", ["firstid='-12' lastid='11'", "firstid='12' lastid='24'"])
def test_volumes_outside_the_mesh_are_refused(package, triangles: str) -> None:
    settings = {SLIC3R: prusa(volume(triangles, "NegativeVolume"))}
    with pytest.raises(MeshError, match=r"slic3r_pe_model\.config: object 1 .*24 triangles"):
        load_mesh(package(two_boxes(1), item(1), **settings))


@pytest.mark.parametrize(
    "settings",
    [
        '<config name="a & b"/>',
        '<?xml version="1.0" encoding="none"?><config/>',
        prusa(volume("firstid='x' lastid='11'", "ModelPart")),
    ],
)
def test_a_damaged_settings_file_is_named(package, settings: str) -> None:
    mesh = load_mesh(package(box_3mf(1, SMALL), item(1), **{SLIC3R: settings}))
    assert mesh.volume * 1e9 == pytest.approx(VOLUME_SMALL)
    (warning,) = mesh.warnings
    assert "slic3r_pe_model.config is damaged" in warning


def parts(number: int, *kinds: tuple[int, str]) -> str:
    inside = "".join(f'<part id="{part}" subtype="{kind}"/>' for part, kind in kinds)
    return f'<object id="{number}">{inside}</object>'


@pytest.mark.parametrize(
    ("objects", "items", "marked", "volume"),
    [
        (  # one object is a part of a solid, and a modifier
            assembly(2, component(1)) + assembly(3, component(1), component(4)),
            item(2) + item(3, at="0 0 50"),
            parts(2, (1, "normal_part")) + parts(3, (1, "modifier_part"), (4, "normal_part")),
            VOLUME_SMALL + VOLUME_LARGE,
        ),
        (  # a modifier is also an item of the build
            assembly(2, component(4), component(1, at="0 0 50")),
            item(2) + item(1, at="0 50 0"),
            parts(2, (1, "modifier_part")),
            VOLUME_SMALL + VOLUME_LARGE,
        ),
        (  # all components of an object are left out
            assembly(3, component(1)) + assembly(5, component(3)),
            item(5) + item(4, at="0 0 50"),
            parts(3, (1, "negative_part")),
            VOLUME_LARGE,
        ),
        (  # equal ids in two model files
            assembly(2, component(1, A), component(1, B)),
            item(2),
            parts(2, (1, "normal_part"), (1, "modifier_part")),
            VOLUME_SMALL,
        ),
    ],
)
def test_marks_belong_to_the_components_of_one_object(
    package, objects: str, items: str, marked: str, volume: int
) -> None:
    settings = {BAMBU_STUDIO: f"<config>{marked}</config>"}
    meshes = box_3mf(1, SMALL) + box_3mf(4, LARGE)
    mesh = load_mesh(package(meshes + objects, items, **settings))
    assert mesh.volume * 1e9 == pytest.approx(volume)
    assert any("_part'" in warning for warning in mesh.warnings)


@pytest.mark.parametrize(
    ("objects", "built", "message"),
    [
        (assembly(2, component(1)), item(2), "nothing solid .*'modifier_part'"),
        (assembly(2, component(1), component(9)), item(2), "refers to object 9"),
        ("", '<item objectid="1" printable="0"/>', "nothing solid .*not printable.*printable"),
    ],
)
def test_a_build_without_solids_says_why(package, objects: str, built: str, message: str) -> None:
    marked = parts(2, (1, "modifier_part"), (9, "modifier_part"))
    settings = {BAMBU_STUDIO: f"<config>{marked}</config>"}
    with pytest.raises(MeshError, match=message):
        load_mesh(package(box_3mf(1, SMALL) + objects, built, **settings))


@pytest.mark.parametrize("on_item", [False, True])
@pytest.mark.parametrize("text", ["True", "False"])
def test_settings_of_cura_count_if_they_are_true(package, text: str, on_item: bool) -> None:
    setting, second = CURA.replace("True", text), box_3mf(2, LARGE)
    if not on_item:
        second = second.replace("<mesh>", setting + "<mesh>")
    marked = item(2, at="0 0 50").replace("/>", f">{setting if on_item else ''}</item>")
    mesh = load_mesh(package(box_3mf(1, SMALL) + second, marked + item(1)))
    whole = VOLUME_SMALL + VOLUME_LARGE * (text == "False")
    assert mesh.volume * 1e9 == pytest.approx(whole)


CURA = '<metadatagroup><metadata name="cura:infill_mesh">True</metadata></metadatagroup>'
BEAMS = (
    '<b:beamlattice xmlns:b="http://schemas.microsoft.com/3dmanufacturing/beamlattice/2017/02"/>'
)


@pytest.mark.parametrize(
    ("objects", "items", "word"),
    [
        (box_3mf(2, LARGE), '<item objectid="2" printable="0"/>', "not printable"),
        (box_3mf(2, LARGE).replace("<mesh>", CURA + "<mesh>"), item(2), "cura:infill_mesh"),
        ('<object id="2"><mesh><vertices/><triangles/></mesh></object>', item(2), "no triangles"),
        (f'<object id="2" s:slicestackid="7" xmlns:s="{SLICE}"/>', item(2), "no triangles"),
        (box_3mf(2, SMALL).replace("</mesh>", BEAMS + "</mesh>"), item(2, at="0 0 50"), "beams"),
    ],
)
def test_what_is_not_read_is_named(package, objects: str, items: str, word: str) -> None:
    mesh = load_mesh(package(box_3mf(1, SMALL) + objects, item(1) + items))
    (warning,) = [text for text in mesh.warnings if "object 2 of 3d/3dmodel.model" in text]
    assert word in warning
    assert mesh.volume * 1e9 == pytest.approx(VOLUME_SMALL * (1 + (word == "beams")))
