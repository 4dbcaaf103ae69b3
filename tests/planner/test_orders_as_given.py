"""Order files as people have them: the exact values read, and the refusals."""

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from agents.cli import main as cli
from packing_env.core.stability import RULES
from packing_env.planner import ContainerType, OrderError, Part, read_containers, read_parts
from packing_env.planner.reading.constraints import STABILITY, read_options
from packing_env.planner.reading.lengths import exact_container
from packing_env.values import ParameterError

Row = tuple[str, tuple[str, str, str], int, str]


def rows(file: str | Path, **options: Any) -> list[Row]:
    """Return names, sides, quantities and units of an order."""
    return [
        (
            part.name,
            tuple(str(Fraction(side)) for side in part.sides or ()),
            part.quantity,
            part.unit,
        )
        for part in read_parts(str(file), default="mm", **options)
    ]  # type: ignore[misc]


Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write an order file; return its path."""

    def written(text: str, name: str = "order.csv", encoding: str = "utf-8") -> str:
        (tmp_path / name).write_bytes(text.encode(encoding))
        return str(tmp_path / name)

    return written


BUILT_IN = tuple(RULES)  # before tests register others
MUG = [("mug", ("12", "10", "9"), 6, "mm")]
MUG_CM = [("mug", ("6/5", "1", "9/10"), 6, "cm")]
LONG = [("1250.5x1120.25x90", ("2501/2", "4481/4", "90"), 6, "mm")]
HUGE = ("1.2e+07x1100x1100", ("12000000", "1100", "1100"), 1, "mm")
METRES = ("3/250", "1/100", "9/1000")
BOX = [("40.5x30.2x20", ("81/2", "151/5", "20"), 4, "mm")]
ORDERS_OF_SIDES = (
    "Package LxWxH", "Box LxWxH (mm)", "Carton L x W x H mm", "Product LxWxH in mm",
    "PKG L*W*H(mm)", "Box_LxWxH_mm", "L_x_W_x_H", "l_x_w_x_h_mm", "L-x-W-x-H",
    "L. x W. x H. (mm)", "LxWxH: (mm)", "Size in LxWxH",
)  # fmt: skip
PLURALS = (
    "QTY/CTNS", "Qty / boxes", "Quantity/Pallets", "Cantidad/cajas", "No. of packages/ctns",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "order"),
    [
        # separators and decimal marks
        ("40,5;30,2;20;4\n", BOX),
        ("12;10;9\n", [("12x10x9", ("12", "10", "9"), 1, "mm")]),
        ("sep=;\ndx;dy;dz;quantity\n40,5;30,2;20;4\n", BOX),
        ('"sep=,"\ndx,dy,dz,quantity\n40.5,30.2,20,4\n', BOX),
        ("dx\tdy\tdz\tquantity\n40,5\t30,2\t20\t4\n", BOX),
        ("name|dx|dy|dz|quantity\nmug|12|10|9|6\n", MUG),
        ("dx,dy,dz\n0.1,0.2,0.3\n", [("0.1x0.2x0.3", ("1/10", "1/5", "3/10"), 1, "mm")]),
        ('name,dx,dy,dz\na,10 1/2,"8,5",6 3/8\n', [("a", ("21/2", "17/2", "51/8"), 1, "mm")]),
        # thousands beside decimals, or with marks that are never decimal
        ("dx;dy;dz;qty\n1.250,5;1.120,25;90;6\n", LONG),
        ('dx,dy,dz,qty\n"1,250.50","1,120.25",90,6\n', LONG),
        ("dx;dy;dz;qty\n1'250.500;1\u2019120.25;90;6\n", LONG),
        ("dx;dy;dz;qty\n1\u202f250,5;1 120,25;90;6\n", LONG),
        ("1,250.5;1,120.25;90;6\n", LONG),
        ("dx;dy;dz\n12.000.000;1\u00a0100;1'100\n", [HUGE]),
        ("dx;dy;dz\n12\u00a0000\u202f000 mm;1\u00a0100mm;1\u00a0100 mm\n", [HUGE]),
        (
            "size;qty\n12\u00a0000\u00a0000 x 1\u00a0100 x 1\u2009100;1\u00a0000\n",
            [(*HUGE[:2], 1000, "mm")],
        ),
        # titles with other separators, and lines between rows
        ("Miller Ltd., London\nname;dx;dy;dz;qty\nmug;12,0;10,0;9,0;6\n", MUG),
        ("Order 4711; May\nname,dx,dy,dz,qty\nmug,12,10,9,6\n", MUG),
        (
            "---------\n|name|dx|dy|dz|qty|\n|---|---|\n---,---,---\n|mug|12|10|9|6|\n---------\n",
            MUG,
        ),
        ("Item, tall;12;10;9\n", [("Item, tall", ("12", "10", "9"), 1, "mm")]),
        ("----\n12;10;9;6\n====\n", [("12x10x9", *MUG[0][1:])]),
        ('name,dx,dy,dz\n"a\n---\nb",1,2,3\n', [("a\\n---\\nb", ("1", "2", "3"), 1, "mm")]),
        (
            'name,dx,dy,dz,qty\n"Box\n40,30,20",12,10,9,6\n',
            [("Box\\n40,30,20", ("12", "10", "9"), 6, "mm")],
        ),
        # names of columns
        ("Item, Length ,WIDTH,height,Qty\nmug,12,10,9,6\n", MUG),
        ("SKU,L,W,H,pcs\nmug,12,10,9,6\n", MUG),
        ("description,W,D,H,count\nmug,12,10,9,6\n", MUG),
        ("name,x,y,z,quantity\nmug,12,10,9,6\n", MUG),
        ("name,sides,quantity\nmug,12x10x9,6\n", MUG),
        # an article number and a description are one name; equal or empty ones are not repeated
        ("SKU,dx,dy,dz,Description\nA1,12,10,9,mug\n", [("A1 mug", ("12", "10", "9"), 1, "mm")]),
        ("código;nombre;dx;dy;dz;cantidad\nA1;mug;12;10;9;6\n", [("A1 mug", *MUG[0][1:])]),
        ("SKU,Description,dx,dy,dz,qty\nmug,mug,12,10,9,6\n", MUG),
        # numbers of rows
        ("name,dx,dy,dz,Quantity #\nmug,12,10,9,6\n", MUG),
        ("No. of cartons,name,dx,dy,dz\n6,mug,12,10,9\n", MUG),
        ("Packages,name,Package length,W,H\n6,mug,12,10,9\n", MUG),
        ("No,dx,dy,dz\n1,12,10,9\n", [("12x10x9", ("12", "10", "9"), 1, "mm")]),
        ("row,dx,dy,dz\n7,12,10,9\n", [("12x10x9", ("12", "10", "9"), 1, "mm")]),
        # units
        ("name,dx_cm,dy_cm,dz_cm\na,1,2,3\n", [("a", ("1", "2", "3"), 1, "cm")]),
        ("name,L [Inch],W [in],H\na,1,2,3\n", [("a", ("1", "2", "3"), 1, "in")]),
        ("Teil;Länge (Zoll);Breite;Höhe\na;1;2;3\n", [("a", ("1", "2", "3"), 1, "in")]),
        ("Longueur en pouces;Largeur;Hauteur\n1;2;3\n", [("1x2x3", ("1", "2", "3"), 1, "in")]),
        ("Largo (centímetros);Ancho;Alto\n1;2;3\n", [("1x2x3", ("1", "2", "3"), 1, "cm")]),
        ("Part No,Artikel-Nr.,Réf.,Código,Item Code,dx,dy,dz,qty\n,,,,mug,12,10,9,6\n", MUG),
        # letters of the sides, and other signs between them
        ("name,size,qty\nmug,L12 x W10 x H9,6\n", MUG),
        ("name;size;qty\nmug;H: 9 x B: 10 x L: 12 mm;6\n", MUG),
        ("name,size,qty\nmug,12mm L x 10mm W x 9mm H,6\n", MUG),
        ("name,size,qty\nmug,12mm(L)*10mm(W)*9mm(H),6\n", MUG),
        ("nom;dimensions;quantité\nmug;L. 12 x l. 10 x H. 9 mm;6\n", MUG),
        ("name,size,qty\nmug,12 long x 10 wide x 9 high,6\n", MUG),
        ("name,size,qty\nmug,12 by 10 by 9 mm,6\n", MUG),
        ("name,size,qty\nmug,L:12 W:10 H:9,6\n", MUG),
        *(
            (f"name;size;qty\nmug;{sides};6\n", MUG)
            for sides in ("12L 10W 9H", "9 mm H, 12 mm L, 10 mm W", "12 L x 10 W x 9 H", "12l10w9h")
        ),
        ("name;size;qty\nmug;H9, L12, W10 mm;6\n", MUG),
        ("name;size;qty\nmug;Length: 12; Width: 10; Height: 9 mm;6\n".replace("; ", ", "), MUG),
        ("name,size,qty\nmug,12x10x9 [mm],6\n", MUG),
        ("name,size,qty\nmug,12\u271510 \u2716 9,6\n", MUG),
        # the order of the sides beside their name, or their unit
        ("Teil;Länge x Breite x Höhe (mm);Stk\nmug;12x10x9;6\n", MUG),
        ("품명;규격(가로*세로*높이, mm);수량\nmug;12x10x9;6\n", MUG),
        ("Item;W x L x H in mm;Qty/pcs\nmug;12x10x9;6\n", MUG),
        ("Teil;Maße (BxTxH);Stk\nmug;12x10x9;6\n", MUG),
        ("name,Outer dimensions LxWxH (mm),qty\nmug,12x10x9,6\n", MUG),
        *((f"name;{title};qty\nmug;12x10x9;6\n", MUG) for title in ORDERS_OF_SIDES),
        ("Name;Package LxWxH (mm);;;Qty\n;L;W;H;\nmug;12;10;9;6\n", MUG),
        ("Miller Ltd., London\nLxWxH;qty;name\n12x10x9;6;mug\n", MUG),
        ("Miller Ltd., London\nLxWxH;qty;weight per carton;name\n12x10x9;6;1;mug\n", MUG),
        # packages of a quantity; pcs/ctn counts what is in one
        *((f"name;dx;dy;dz;{title}\nmug;12;10;9;6\n", MUG) for title in PLURALS),
        ("itemName,lengthMm,widthMm,heightMm,orderQty,UoM\nmug,12,10,9,6,mm\n", MUG),
        ("item;Size in mm (W x D x H);qty\nmug;12x10x9;6\n", MUG),
        ("name,dx,dy,dz,qty,unit\nmug,12 mm,10,9,6,mm\n", MUG),
        ("name,dx,dy,dz,unit\na,1,2,3,MM\n", [("a", ("1", "2", "3"), 1, "mm")]),
        ("name,dx,dy,dz\na,10in,8in,6in\n", [("a", ("10", "8", "6"), 1, "in")]),
        # units of each side, in a row of their own, and in columns beside the numbers
        ("name,dx (mm),dy (cm),dz (m),qty\nmug,12,1,.009,6\n", [("mug", METRES, 6, "m")]),
        ("name,dx (mm),dy,dz,qty\n,mm,mm,mm,pcs\nmug,12,10,9,6\n", MUG),
        ("Size,qty,CBM,name\nmm,,m3,text\n12x10x9,6,,mug\n", MUG),
        ("name,L,W,H,qty,weight\n[unit],[mm],[mm],[mm],[-],[kg]\nmug,12,10,9,6,1\n", MUG),
        (
            "name,L,,W,,H,,qty,\nmug,12,mm,1,cm,9,mm,6,pcs\nlid,2,,3,,1,,6,\n",
            [*MUG, ("lid", ("2", "3", "1"), 6, "mm")],
        ),
        ("name,L,W,H,unit,weight,unit,qty\nmug,12,10,9,mm,1 kg,kg,6\n", MUG),
        ("name,UOM,qty,L (mm),W (mm),H (mm)\nmug,EA,6,12,10,9\n", MUG),
        ("name,Outer L mm,Outer W mm,Outer H mm,Qty*\nmug,12,10,9,6\n", MUG),
        # comments, titles, empty lines and columns, no header
        ("Packing list\n\n,May 2025\nname,dx,dy,dz,quantity\nmug,12,10,9,6\n", MUG),
        (
            "Order;4711\n;29.11.2026\n\nPos.;Teil;Länge in mm;Breite in mm;Höhe in mm;Stk\n"
            "1;mug;12;10;9;6\n",
            MUG,
        ),
        ("Order,4711,,Customer,ACME\nname,dx,dy,dz,quantity\nmug,12,10,9,6\n", MUG),
        (",Size (mm),,,\nname,L,W,H,qty\nmug,12,10,9,6\n", MUG),
        ("name,Size (cm),,,qty\n,L,W,H,\nmug,1.2,1,.9,6\n", MUG_CM),
        ("# quantity,dx,dy,dz,name\n6,12,10,9,mug\n", MUG),
        ("#name,dx,dy\nname,W,D,H,quantity\nmug,12,10,9,6\n", MUG),
        ("#,name,dx,dy,dz,quantity\n1,mug,12,10,9,6\n#2,lid,1,1,1,6\n", MUG),
        ("name,dx,dy,dz,quantity\nmug,12,10,9,6\nname,dx,dy,dz,quantity\n", MUG),
        ("name,L,Outer length,W,H,D,pcs\nmug,12,,10,9,,6\n", MUG),
        ("# my order\n\nname,dx,dy,dz,quantity,,\n\n#old,1,1,1,1\nmug,12,10,9,6,,,\n,,,\n", MUG),
        ("mug,12,10,9,6\n", MUG),
        ("12x10x9,12,10,9,6\n", [("12x10x9", *MUG[0][1:])]),
        ("mug;12x10x9 mm;6\n", MUG),
        ("40,5x30,2x20;4\n", BOX),
        *(
            (f"{name};12;10;9;6\n", [(name, *MUG[0][1:])])
            for name in ("3M", "10mm", "5 m", "3FT", "5'", "4in")  # which may be lengths
        ),
        ("3M;12;10;9 mm;6\n", [("3M", *MUG[0][1:])]),
        ("name,dx,dy,dz,quantity,remarks,checked by\nmug,12,10,9,6,,\n", MUG),
        ('name,dx,dy,dz,quantity\n="mug",="12","=""10""",9,6\n', MUG),
        ('name;dx;dy;dz\nx="1";1;2;3\n', [('x="1"', ("1", "2", "3"), 1, "mm")]),
        # signs of other keyboards, and a mark where two files were joined
        ("品名,サイズ,個数\nmug,１２×１０×９ミリ,6個\n", MUG),
        ("品名,サイズ,個数\nmug,12×10×9\u339c,6個\n", MUG),
        ("Название;Габариты;Кол.\nmug;12х10х9 мм;6 шт.\n", MUG),
        ("name,dx,dy,dz,quantity\n\ufeffmug,12,10,9,6\n", MUG),
        ('name,dx,dy,dz\n"1,200",1,2,3\n', [("1,200", ("1", "2", "3"), 1, "mm")]),
    ],
)
def test_tables_are_read_as_given(text: str, order: list[Row], write: Write) -> None:
    assert rows(write(text)) == order


LATIN = "name;dx;dy;dz;quantity"
ENCODINGS = {
    "utf-8": (LATIN, "Kühlbox"),
    "utf-8-sig": (LATIN, "Kühlbox"),
    "utf-16": (LATIN, "Kühlbox"),
    "latin-1": (LATIN, "Kühlbox"),
    "cp1252": (LATIN, "Kühlbox"),
    # names of columns show an older encoding
    "cp1250, hu": ("Megnevezés;Hossz (mm);Szélesség;Magasság;Darab", "Külső fedő, hűtő"),
    "cp1250, short": ("Név;L (mm);W;H;db", "Fedő"),
    "cp1252, one word": ("Name;Länge (mm);Breite;Höhe;Stück;Cikk", "Garçon à côté, señor"),
    "cp1250": ("Nazwa;Długość [mm];Szerokość;Wysokość;Ilość [szt.]", "Żółty"),
    "iso8859_2": ("Nazwa;Długość [mm];Szerokość;Wysokość;Ilość (szt.)", "Żółty"),
    "cp1254": ("Ürün;Uzunluk (mm);Genişlik;Yükseklik;Adet", "Kağıt"),
    "cp1251": ("Название;Длина, мм;Ширина, мм;Высота, мм;Количество", "Коробка"),
    "gb18030": ("品名;长度(mm);宽度(mm);高度(mm);数量", "纸箱"),
    "cp932": ("品名;長さ(mm);幅(mm);高さ(mm);個数", "ケース"),
    "cp949": ("품명;길이(mm);폭(mm);높이(mm);수량", "상자"),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_encodings(encoding: str, write: Write) -> None:
    header, name = ENCODINGS[encoding]
    file = write(f"{header}\n{name};12;10;9;6\n", encoding=encoding.partition(",")[0])
    assert rows(file) == [(name, *MUG[0][1:])]


@pytest.mark.parametrize(
    ("encoding", "message"),
    [("utf-32", "is UTF-32; save it as CSV UTF-8"), ("cp437", "line 2: .*CSV UTF-8")],
)
def test_other_encodings_are_refused_with_the_remedy(
    encoding: str, message: str, write: Write
) -> None:
    with pytest.raises(OrderError, match=message):
        rows(write("name,dx,dy,dz\nKühlbox,1,2,3\n", encoding=encoding))


@pytest.mark.parametrize(
    "cell",
    [
        "6", " 6 ", "6.0", "0.6e1", "6 pcs", "6 Stück", "6 stk.", "6 ctns", "x6", "6x", "× 6",
        "EA 6", "pcs: 6", "6 Nos", "* 6",
    ],
)  # fmt: skip
def test_quantities_as_people_write_them(cell: str, write: Write) -> None:
    assert rows(write(f"name;dx;dy;dz;qty\nmug;12;10;9;{cell}\n")) == MUG


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("12,10,9\n", "no header; the columns are read as dx, dy, dz"),
        ("name,dx,dy,dz\na,1,2,3\n#4 bolt,1,2,3\n", "not read as entries: line 3 (#4 bolt)"),
        ("name,dx,dy,dz,group\na,1,2,3,1\nb,1,2,3,\n", "without a group, so unloaded first: b"),
        ("dx,dy,dz,unit\n1,2,3,cm\n2,2,3,\n", "others, such as 2x2x3, none"),
        (
            "name,length (mm),width (mm),height (mm),quantity,weight (kg),max_load\n"
            "mug,12,10,9,6,1,2\n",
            "",  # documented names are read in silence
        ),
    ],
)
def test_a_line_says_what_was_assumed(
    text: str, line: str, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    read_parts(write(text), default="mm")
    assert line in caplog.text
    assert bool(line) == bool(caplog.text)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("dx (m)\tdy (m)\tdz (m)\n1.225\t1.800\t1.450\n", None),
        ("dx;dy;dz;unit\n1,225;1,800;1,450;m\n", None),
        ("sides;weight\n1.225x1.800x1.450 m;1.500\n", None),
        ("dx\tdy\tdz\n1.225\t1.800\t1.450\n", "m"),
        ("dx (in);dy;dz\n1.225;1.800;1.450\n", None),
        ("dx;dy;dz\n1.225;1.800;1.450\n122.500;1.000;1.000\n", None),  # 122.5 m otherwise
    ],
)
def test_a_mark_is_decimal_where_thousands_would_be_too_long(
    text: str, unit: str | None, write: Write
) -> None:
    assert rows(write(text), unit=unit)[0][1] == ("49/40", "9/5", "29/20")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,dx,dy,dz\nTOTAL,1,2,3\n", "line 2: looks like a row of totals"),
        ("name,dx,dy,dz\nZwischenSumme,1,2,3\n", "line 2: looks like a row of totals"),
        ("name,dx,dx,dz\na,1,2,3\n", "'dx' and 'dx' mean the same"),
        ("length,dx,dy,dz\n1,2,3,4\n", "are not three sides"),
        ("length (mm),width (cm),height\n1,2,3\n", "units differ: cm, mm"),
        ("dx_mm,dy_cm,dz_m\n10in,2,3\n", "dx_mm='10in': the header states mm"),
        ("dx,dy,dz,\n1,2,3,x\n", "4 columns under 3 names"),  # an x may mean anything
        ("dx,dy,dz,qty,\n1,2,3,4,x\n", "5 columns under 4 names"),
        ("dx,dy,dz,weight,unit\n1,2,3,5,lb\n1,2,3,5,\n", "line 3: no unit beside weight=5"),
        ("dx,dy,dz,weight,unit\n1,2,3,5 kg,g\n", "line 2: weight='5 kg g'"),
        ("dx,dy,dz,qty,Ext. Weight\n1,2,3,4,20\n", "'Ext. Weight' is not supported"),
        ("dx,dy,dz\n-½ in,2 in,3 in\n", "line 2: dx=-½ must be a number, more than 0"),
        ("dx,dy,dz,Item value\n1,2,3,4\n", "'Item value' is not supported, did you mean value"),
        ("mug,1,2,3\nname,dx,dy,dz\nlid,1,2,3\n", "line 2: dx='dx' must be a"),  # no title
        ("dx,dy,dz,rotatable\n1,2,3,no\n", "'rotatable' may mean turn or tiltable"),
        ("dx,dy,dz,upright,tiltable\n1,2,3,yes,yes\n", "upright and tiltable contradict"),
        ("length (mmm),width,height\n1,2,3\n", "unit 'mmm' is unknown, did you mean mm"),
        ("dx_mm,dy_mm,dz_mm,unit\n1,2,3,cm\n", "line 2: units differ"),
        ("dx,dy,dz,weight (ton)\n1,2,3,4\n", "line 1: .* may be 1000 kg, 2000 lb"),
        ("dx,dy,dz,unit\n1,2,3,milimeter\n", "did you mean millimeter"),
        ("name;dx;dy;dz\n", "no parts in it"),
        ("name;dx;dy;dz;weight\na;1.200;800;600;1,5\n", "may be 1.2 or 1200"),
        ('dx,dy,dz\n"1,200",800,600\n', "may be 1.200 or 1200"),
        ("dx (mm)\tdy\tdz\n1.200\t800\t600\n24.000\t100\t100\n", "may be 1.2 or 1200"),  # a bar
        ("dx;dy;dz\n1.200 mm;800 mm;600 mm\n", "may be 1.2 or 1200"),
        ("sides;weight\n12x8x6;1.500 kg\n", "may be 1.5 or 1500"),
        ("dx,dy,dz\n1 200,800,600\n", "separators of thousands"),
        ("dx,dy,dz\n0.5\u00a0200,800,600\n", "is not a number"),
        # line breaks, tabs and several spaces do not separate thousands
        *(
            (f'{names}\n"12{space}500",{sides}\n', f"'12{shown}500' is not a number")
            for space, shown in {
                "\n": r".n",
                "\t": r".t",
                " \n": r" .n",
                "\n ": r".n ",
                "  ": "  ",
                "\u00a0\u202f": ".*",
            }.items()
            for names, sides in (("dx,dy,dz", "2,3"), ("qty,size", "1x2x3"), ("kg,size", "1x2x3"))
        ),
        ("dx,dy,dz\n1  250 mm,2,3\n", "line 2: dx='1  250' must be a length: '1  250' is"),
        ("dx,dy,dz,quantity\n1,2,3,2.5\n", "line 2: quantity='2.5' must be a whole number"),
        ("dx,dy,dz,quantity\n1,2,3,-1\n", "line 2: quantity of 1x2x3=-1 must be .* at least 0"),
        ("dx,dy,dz,quantity\n1,2,3,0\n", "quantity of every part is 0: 1x2x3"),
        ("dx,dy,dz,quantty\n1,2,3,7\n", "did you mean quantity"),
        ("dx,dy,dz,Menge\n1,2,3,1\n4,5,6,\n", "line 3: Menge is empty; write a number, or 0"),
        ("1,2,3,4\n4,5,6\n", "line 2: quantity is empty"),
        ("name;dx;dy;dz;Stk.;kg\nmug;1;2;3;4;5\n;;;;4;20\n", "line 3: looks like a row of totals"),
        ("品名,サイズ,数量\nmug,1x2x3,4\n合計,,4\n", "line 3: looks like a row of totals"),
        ("No,dx,dy,dz\n6,1,2,3\n2,4,5,6\n", "'No' may count rows or boxes"),
        ("Nr;dx;dy;dz\n40;1;2;3\n", "'Nr' may count rows or boxes"),
        *(
            (f"dx,dy,dz,{title}\n1,2,3,40\n", f"line 1: '{title}' is not supported")
            for title in (
                "pcs/ctn",
                "Qty/box",
                "数量/箱",
                "pcs/ctns",
                "Stück/Kartons",
                "Qté/colis",
                "ctns/pallets",
            )
        ),
        ("name,Inner LxWxH\na,1x2x3\n", "line 1: 'Inner LxWxH' is not supported"),
        ("name,Size (HxWxL)\na,1x2x3\n", "line 1: 'Size .HxWxL.': unit 'HxWxL' is unknown"),
        (",dx,dy,dz\n0,1,2,3\n", "line 2: '0' in column 1, without a name; .* remove it"),
        ("dx,dy,dz,stackable,do not stack\n1,2,3,no,no\n", "line 2: stackable and no_stacking"),
        ("name,lxwxh\na,30-20-10\n", "line 2: lxwxh='30-20-10' must be three sides"),
        ("name,lxwxh\na,L30 x W20 x D10 x 2\n", "line 2: lxwxh=.* must be three sides"),
        *(
            (f"name;lxwxh\na;{sides}\n", "line 2: 'L.*5.*' may be 5.* or 0.5.*; write")
            for sides in (
                "L.5 x W.4 x H.3 m",
                "L .5m x W .4m x H .3m",
                "L. .5m x H3m x B.4m",
                "L,5 x W,4 x H,3 m",
            )
        ),
        ("name,lxwxh\na,L30 x W20 x L10\n", "line 2: 'L30 x W20 x L10' has L and L; name each"),
        ("name,lxwxh\na,30L 20L 10H\n", "line 2: '30L x 20L x 10H' has L and L; name each side"),
        ("dx,dy,dz\n10 dm,2,3\n", "line 2: dx='10 dm' .* unit='dm' is unknown, .*; use one of m"),
        ("dx,dy,dz,weight\n1,2,3,1 lb 16 oz\n", "line 2: weight='1 lb 16 oz' has 16 oz or more"),
        ("dx,dy,dz,Weight per pallet\n1,2,3,4\n", "'Weight per pallet' is not supported"),
        (
            "file,L,W,H\nlid.stl,1,2,3\n",
            "line 2: file='lid.stl' has its own sides; remove L, W, H, or the file if the part is",
        ),
        ("dx;dy;dz\n12,5;1,250.5;3\n", "dy='1,250.5' .* has separators of thousands"),
        ("name,dx,dy,dz,qty\na,1,2,3,4\nTotal pieces,,,,4\n", "line 3: 'Total pieces' has no"),
        (
            'name,dx,dy,dz\na,1,2,3\n"5"" lid,1,2,3\nlid 5",1,2,3\n',
            "line 3: a quotation mark holds rows",
        ),
        (
            'name,dx,dy,dz,qty,kg\n"5"" lid,1,2,3,4,5\nA,1,2,3,4,5\n',
            "line 2: a quotation mark holds rows",
        ),
        (
            'name,dx,dy,dz,unit,kg\n"A,1,2,3,cm\nB,1,2,3,cm\n"C",1,2,3,cm,5\n',
            "line 2: a quotation mark holds rows",
        ),
        (
            'pos,sku,name,dx,dy,dz\n1,A,"5,7,2,3\n2,B,6",7,2,3\n',
            "line 2: a quotation mark holds rows",
        ),
        ("dx,dy,dz,Stop\n1,2,3,Oslo\n", "Stop='Oslo' must be a number .1 is unloaded first.: 'O"),
        ("dx,dy,dz,qty\n1,2,3,-\n", "line 2: qty is empty"),
        ("dx,dy,dz,unit\n1 mm,2,3,cm\n", "line 2: give the unit of each side"),
        ("dx,dy,dz,qty\n1,2,3,Box 12\n", "line 2: qty='Box 12' must be a number"),
        ("dx,dy,dz\n1,n/a,3\n", "line 2: no dy; a box has three sides"),
        ("dx,dy,dz,max_load\n1,2,3,none\n", "line 2: max_load='none' must be a number"),
        # a dash may be 0 or no
        ("dx,dy,dz,max_load\n1,2,3,-\n", "line 2: max_load='-' must be a number"),
        ("dx,dy,dz,layers\n1,2,3,–\n", "line 2: layers='–' must be a number"),
        ("dx,dy,dz,stackable\n1,2,3,-\n", "line 2: stackable='-' must be true or false"),
        ("name,lxwxh\na,1/2/3\n", "line 2: lxwxh='1/2/3' must be three sides, as in 30x20x10"),
        ("name,sides\na,1x2\n", "line 2: sides='1 x 2' must be three sides"),
        ("Packing list\nname,colour\n", "line 1: 'Packing list' is not supported"),
        (
            "dx,dy,dz,CBM,To\n1,2,3,1,X\n",
            "'CBM', 'To' are not supported; .*--column CBM= --column To=;",
        ),
        ("Carton No.,Qty,dx,dy,dz\n1-10,12,1,2,3\n", "Carton No.='1-10' may be several boxes"),
        ("Pallet ID,Packages,L,W,H\nP1,24,1,2,3\n", "'Packages' is not supported"),
        ("dx,dy,dz,Fragile (no)\n1,2,3,1\n", "'no' is not supported"),
        ("dx,dy,dz\n1,2,3\n,,,many\n", "line 3: looks like a row of totals"),
        ("dx,dy,dz,weight,weight unit\n1,2,3,4,lb\n1,2,3,4,\n", "line 3: no weight unit"),
        (
            "dx,dy,dz,weight (lb),weight unit\n1,2,3,4,kg\n",
            "line 2: weight unit='kg': .* states lb",
        ),
        # messages name the columns of the file
        ("length,width,height\n1,0,3\n", "line 2: width=0 must be a number, more than 0"),
        ("length,width,height\n1,2,3\n1,,3\n", "line 3: no width; a box has three sides"),
        ("length,width\n1,2\n", "line 1: 'length', 'width': a box has three sides; add height"),
        ("L x B x H;Menge\n1x2x3;viele\n", "line 2: Menge='viele' must be a number"),
        # weights with units
        ("dx,dy,dz,weight\n1,2,3,4 ton\n", "line 2: weight='4 ton': 'ton' may be"),
        *(
            (f"{row}\n", "line 1: no header")
            for row in ("2,6x4x3", "2 pcs,6x4x3", "x2,6x4x3,a", "a,c,6x4x3", "6x4,2")
        ),
        ("lid.stl,4\n", "line 1: no header; write the names of the columns above it"),
        ("60x40x30,4,red\n20x20x20,2,blue\n", "line 1: 3 columns under 2 names"),
        ("dx,dy,dz,weight (lb)\n1,2,3,4kg\n", "line 2: .*the header states lb; use one unit"),
        ("dx,dy,dz,weight\n1,2,3,4 stone\n", "line 2: weight='4 stone': 'stone' is not a unit of"),
        ("dx,dy,dz,N.W.,Net weight\n1,2,3,4,5\n", "'N.W.' and 'Net weight' mean the same"),
        (
            "dx,dy,dz,N.W.,G.W.\n1,2,3,4,5\n1,2,3,4,\n",
            "line 3: G.W. is empty, but not N.W.; give G.W. in all rows",
        ),
        # long runs of one character take no time
        *(
            (f"sides,qty,kg ({run}\n1x2x3,1{run}?,4\n", "'kg .* is not supported")
            for run in (" " * 50_000, "(" * 50_000)
        ),
        *(
            (f"sides;qty\n1{run}?;1\n", "line 2: sides=.* must be three sides")
            for run in (" " * 50_000, "1" * 50_000, "1 " * 25_000)
        ),
        (f"sides;qty\n1x2x3;1{'a' * 50_000}1a?\n", "line 2: qty=.* must be a number"),
        (f"sides;qty\n1x2x3;1{'1' * 50_000}a?\n", "line 2: qty=.* must be a number"),
        # handling
        ("dx,dy,dz,weight\n1,2,3,-1\n", "line 2: .*weight=-1 "),
        ("dx,dy,dz,fragile\n1,2,3,perhaps\n", "line 2: .*fragile='perhaps' must be true or false"),
        ("dx,dy,dz,faces\n1,2,3,top\n", "line 2: .*faces='top' is not a face"),
        ("dx,dy,dz,group\n1,2,3,1.5\n", "line 2: .*group=1.5 must be an integer"),
        # nombre is a name in Spanish, a number in French
        ("dx,dy,dz,Nombre\n1,2,3,4\n", "'Nombre' may mean name or quantity"),
        ("dx,dy,dz,Units\n1,2,3,12\n", "line 2: Units='12' is unknown"),
        ("L,W,H\nmm,mm,mm\n40cm,30,20\n", "line 3: .*='40cm': the header states mm"),
        ("name,dx,dy,dz,qty\nmug,12,10,9,6\nPacked by Jim\n", "line 3: 'Packed by Jim' has no"),
        ("dx,dy,dz\n1,nan,3\n", "'nan' is not a number"),
        ("name,file\nlid,lid.stl\n", "order.csv, line 2: lid.stl: no such file"),
        ("name,file\nlid,a\\lid.stl\n", "order.csv, line 2: a/lid.stl: no such file"),
        ("name,file\nlid,Order.CSV\n", "no such file in .*, did you mean order"),
    ],
)
def test_what_is_not_understood_is_refused(text: str, message: str, write: Write) -> None:
    with pytest.raises(OrderError, match=message):
        rows(write(text))


def test_the_gross_weight_counts_beside_the_net_weight(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    file = write("dx,dy,dz,N.W. (lb),unit,G.W.\n1,2,3,4,mm,5\n1,2,3,-,mm,\n")
    assert [part.handling for part in read_parts(file)] == [{"weight": 5}, {}]
    assert "N.W. (lb) as net weight (unused), G.W. as weight of one piece" in caplog.text


EXPORTS = {
    "cartons of a marketplace": (
        "Box #,Box name,Box weight (lb):,Box width (inch):,Box length (inch):,Box height (inch):\n"
        "1,P1,10,16,24,12\n",
        [("P1", ("24", "16", "12"), 1, "in")],
        4.5359237,
    ),
    "line items of a shop": (
        "Lineitem name,Lineitem quantity,Package length (cm),Width,Height,Grams\n"
        "Mug,3,40,30,35,4200\n",
        [("Mug", ("40", "30", "35"), 3, "cm")],
        4.2,
    ),
    "pallets": (
        "Piece No,Pallet ID,L (in),W (in),H (in),Gross Weight (lbs),Stackable (Y/N)\n"
        "1,P1,48,40,52,100,N\n",
        [("P1", ("48", "40", "52"), 1, "in")],
        45.359237,
    ),
    "cartons for export": (
        "Ctn No;Description;L (cm);W (cm);H (cm);Ctns;N.W./ctn (kg);G.W./ctn (kg)\n"
        "1;Mug;60;40;30;4;10;12\n",
        [("Mug", ("60", "40", "30"), 4, "cm")],
        12,
    ),
    "units in columns": (
        "Material;Menge;Länge;Breite;Höhe;Abmessungseinheit;Bruttogewicht;Gew.Einh.\n"
        "A;12;400;300;200;MM;1250;G\n",
        [("A", ("400", "300", "200"), 12, "mm")],
        1.25,
    ),
}


@pytest.mark.parametrize("export", EXPORTS)
def test_exports_of_other_programs(export: str, write: Write) -> None:
    text, order, weight = EXPORTS[export]
    assert rows(write(text)) == order
    assert read_parts(write(text))[0].handling["weight"] == weight


@pytest.mark.parametrize(("title", "cell"), [("Tiltable?", "no"), ("kippbar", "nein")])
def test_a_box_that_is_not_tiltable_stays_upright(title: str, cell: str, write: Write) -> None:
    assert read_parts(write(f"dx,dy,dz,{title}\n1,2,3,{cell}\n"))[0].faces == ("+z",)


def test_the_user_says_what_columns_mean(write: Write) -> None:
    """A unit in the title applies, also to a column whose name is unknown."""
    text = "Ref,L x W x H (cm),Pcs,Wt per pc (lb),CBM,Total\nmug,120x100x90,6,10,1.2,60\n"
    columns = {"Wt per pc (lb)": "weight", "cbm": "", "Total": ""}
    (part,) = read_parts(write(text), columns=columns)
    assert (part.sides, part.unit, part.quantity) == ((120, 100, 90), "cm", 6)
    assert part.handling == {"weight": 4.5359237}
    below = write("L,W,H,Wt per pc,CBM\nmm,mm,mm,lb,m3\n3,2,1,10,9\n")  # units in a row
    (part,) = read_parts(below, columns={"Wt per pc": "weight", "CBM": ""})
    assert part.handling == {"weight": 4.5359237}
    document = write('[{"l": 3, "w": 2, "h": 1, "colour": "red"}]', "order.json")
    assert read_parts(document, columns={"colour": "name"})[0].name == "red"
    numbers = write("nombre,L,W,H,Stack up to,Qty #,Pos\n5,3,2,1,50,4,1-1\nTotal,,,,,,\n")
    meanings = {"nombre": "", "Stack up to": "max_load"}
    assert read_parts(numbers, columns=meanings)[0].handling == {"max_load": 50}
    assert rows(numbers, columns=meanings | {"Qty #": "quantity"})[0][2] == 4
    meanings = {"nombre": "quantity", "Stack up to": "", "Qty #": ""}
    with pytest.raises(OrderError, match="line 3: looks like a row of totals"):
        rows(numbers, columns=meanings)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"CBM": "", "colour": ""}, "no order has a column 'colour'"),
        ({"CBM": "wieght"}, r"column 'CBM': 'wieght' is not one of .*did you mean weight"),
        ({"CBM": "", "cbm": "weight"}, "a column is named twice: 'CBM', 'cbm'"),
        ({"CBM": "", "Qty": ""}, "two columns are named 'qty'; rename one"),
    ],
)
def test_wrong_meanings_of_columns_are_refused(
    columns: dict[str, str], message: str, write: Write
) -> None:
    order = "dx,dy,dz,CBM,Qty,Qty\n1,2,3,1,2,2\n" if "Qty" in columns else "dx,dy,dz,CBM\n1,2,3,1\n"
    with pytest.raises(OrderError, match=message):
        read_parts(write(order), columns=columns)


def test_the_command_leaves_columns_out(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    order = ["pack", write("dx,dy,dz,CBM\n1,2,3,1\n"), "--container", "10x10x10mm"]
    order += ["--seconds", "0.1", "--out", write("").replace("order.csv", "out")]
    write("dx,dy,dz,CBM\n1,2,3,1\n")
    assert cli.main(order) == 2
    assert "--column CBM=" in capsys.readouterr().err
    assert cli.main([*order, "--column", "CBM="]) == 0
    with pytest.raises(SystemExit):
        cli.main([*order, "--column", "CBM"])
    assert "'CBM' must be TITLE=NAME" in capsys.readouterr().err


LANGUAGES = {
    "de": "Bezeichnung;Länge (mm);Breite;Höhe;Anzahl;Gewicht in kg",
    "de, capitals and digraphs": "ARTIKEL;LAENGE_MM;BREITE;HOEHE;STÜCK;GEWICHT [kg]",
    "de, capitals in words": "ArtikelBezeichnung;Länge (mm);Breite;Höhe;StückZahl;BruttoGewicht",
    "de, depth": "Teil;Breite [mm];Tiefe;Höhe;Menge;Masse",
    "fr": "Désignation;Longueur en mm;Largeur;Hauteur;Quantité;Poids (kg)",
    "fr, depth": "Référence;Largeur;Profondeur;Hauteur;Nombre;Poids",
    "es": "Nombre;Largo (mm);Ancho;Alto;Cantidad;Peso",
    "it": "Descrizione;Lunghezza;Larghezza;Altezza;Quantità;Peso (kg)",
    "nl": "Omschrijving;Lengte;Breedte;Hoogte;Aantal;Gewicht",
    "pl": "Nazwa;Długość (mm);Szerokość;Wysokość;Ilość;Waga w kg",
    "tr": "Ürün;Uzunluk (mm);Genişlik;Yükseklik;Adet;AĞIRLIK (kg)",
    "cs": "Název;Délka (mm);Šířka;Výška;Množství;Hmotnost (kg)",
    "sv": "Artikel;Längd (mm);Bredd;Höjd;Antal;Vikt (kg)",
    "da": "Vare;Længde (mm);Bredde;Højde;Antal;Vægt (kg)",
    "pt": "Descrição;Comprimento (mm);Largura;Altura;Quantidade;Peso",
    "ru": "Наименование;Длина, мм;Ширина, мм;Высота, мм;Кол-во;Вес, кг",
    "zh": "品名;长度（毫米）;宽度（毫米）;高度（毫米）;数量（箱）;毛重（公斤）",
    "zh, traditional": "商品;長(mm);寬(mm);高(mm);數量;重量(kg)",
    "ja": "品名;長さ(mm);幅(mm);高さ(mm);個数;重量(kg)",
    "ja, depth": "商品名;幅(mm);奥行き(mm);高さ(mm);数量;重さ(キロ)",
    "ko": "품명;길이 (밀리미터);폭;높이;수량;중량 (kg)",
    "ko, across": "제품명;세로 (mm);가로;높이;개수;총중량",
    "hu": "Megnevezés;Hosszúság (milliméter);Szélesség;Magasság;Mennyiség (db);Súly (kg)",
    "fi": "Tuote;Pituus (mm);Leveys;Korkeus;Määrä (kpl);Paino (kg)",
    "en": "SKU;L (mm);W;H;pcs;mass",
    "en, of packing lists": "Item;L (mm);W;H;Ctns;G. W. (kgs)",
    "en, net": "Item;L (mm);W;H;Ctns;N.W.",
}


@pytest.mark.parametrize("header", LANGUAGES.values(), ids=LANGUAGES)
def test_headers_of_other_languages(
    header: str, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(f"{header}\nmug;12;10;9;6;0,4\n")
    assert rows(file) == MUG
    assert read_parts(file, "mm")[0].handling == {"weight": 0.4}
    # A document may have the same names as keys.
    entry = dict(zip(header.split(";"), ["mug", 12, 10, 9, 6, 0.4], strict=True))
    document = write(json.dumps({"items": [entry]}), "order.json")
    assert rows(document) == MUG
    assert read_parts(document, "mm")[0].handling == {"weight": 0.4}
    # One line says which column was read as what.
    lines = [r.message for r in caplog.records if "columns are read by meaning" in r.message]
    columns = header.split(";")
    assert all(f"{columns[k]} as {key}" in lines[0] for k, key in ((0, "name"), (4, "quantity")))


NO_STACKING = (
    "Do not stack", "nicht stapelbar", "Nicht stapeln", "ne pas gerber", "No apilar",
    "non sovrapponibile", "niet stapelen", "nie piętrować", "Não empilhar",
)  # fmt: skip
HANDLING = {name: {"stackable": False} for name in NO_STACKING} | {"Stop": {"group": 1}, "Nr.": {}}
UP = ("This side up", "aufrecht", "Nicht kippen", "不可倒置")


@pytest.mark.parametrize("name", [*HANDLING, *UP])
def test_handling_as_people_write_it(name: str, write: Write) -> None:
    (part,) = read_parts(write(f"{name};dx;dy;dz\n1;12;10;9\n"), "mm")
    assert part.handling == HANDLING.get(name, {})
    assert part.faces == (("+z",) if name in UP else ())


@pytest.mark.parametrize(
    ("header", "cell", "kilograms"),
    [
        ("weight", "400kg", 400),
        ("kg", "400", 400),
        ("weight", "400 g", 0.4),
        ("weight", "2 lb", 0.90718474),
        ("weight", "2. lbs.", 0.90718474),
        ("weight", "1,5 t", 1500),
        ("weight (lb)", "10", 4.5359237),
        ("weight_lbs", "10", 4.5359237),
        ("Weight per unit (lb)", "10", 4.5359237),
        ("Weight/pcs (g)", "250", 0.25),
        *(
            (f"weight{each}", "400", 400)
            for each in (" per piece", " per-piece", "/pc", "_pc", "_pcs", " per box", " each")
        ),
        *(
            (title, "400", 400)
            for title in (
                "G.W./ctn",
                "Weight per carton (kg)",
                "N.W. per carton (kg)",
                "kg/ctn",
                "G.W. (kg)/CTN",
                "GW (kg/ctn)",
                "Gross weight per package",
                "Gewicht pro Karton",
                "weightPerCarton",
                "Weight (per item)",
                "毛重(kg/箱)",
            )
        ),
        ("lbs per box", "10", 4.5359237),
        ("weight", "1 lb 4oz", 0.5669904625),
        ("weight (lb)", "1 lb 4 oz", 0.5669904625),
        ("weight (oz)", "1 lb 4 oz", 0.5669904625),
        ("weight [g]", "250", 0.25),
        ("weight", "1\u00a0250,5 kg", 1250.5),
        ("Gewicht", "7 1/2 kg", 7.5),
    ],
)
def test_weights_with_units(header: str, cell: str, kilograms: float, write: Write) -> None:
    (part,) = read_parts(write(f"dx;dy;dz;{header}\n1;2;3;{cell}\n"), "mm")
    assert part.handling == {"weight": kilograms}
    if header == "weight":
        assert Part(sides=(1, 2, 3), handling={"weight": cell}).handling == part.handling


@pytest.mark.parametrize("word", ["-", "–", "n/a", "N.A.", "NA", "NULL", "k.A."])
def test_words_for_no_value(word: str, write: Write) -> None:
    keys = "max_load,layers,name,weight,weight_unit,fragile,stop,value,faces,upright,together,file"
    limit = "" if word in "-–" else word  # a dash may be 0
    together = {"together": word} if word in ("NA", "NULL") else {}  # which may be labels
    (part,) = read_parts(write(f"{keys},dx,dy,dz,qty\n{limit},{limit},{f'{word},' * 10}3,2,1,6\n"))
    assert (part.name, part.handling, part.faces, part.quantity) == (word, together, (), 6)


def test_documents_are_read_as_written(write: Write) -> None:
    text = "unit: MM\nparts:\n- {name: on, sides: [010, 2.50, 7 1/2]}\n- {sides: 10x20x30}\n"
    assert rows(write(text, "a.yaml")) == [
        ("on", ("10", "5/2", "15/2"), 1, "mm"),
        ("10x20x30", ("10", "20", "30"), 1, "mm"),
    ]
    entry = {"name": "a", "dx": 0.1, "dy": 2, "dz": "3/8", "upright": True}
    file = write(json.dumps([entry], indent="\t"), "a.json")
    assert rows(file) == [("a", ("1/10", "2", "3/8"), 1, "mm")]
    entry = {"sku": 4711, "description": "a", "sides": [1, 2, 3]}
    assert rows(write(json.dumps([entry]), "a.json")) == [("4711 a", ("1", "2", "3"), 1, "mm")]
    for size in ("1x2x3", [1, 2, 3]):
        entry = {"name": "a", "size": {"value": size, "unit": "cm"}}
        assert rows(write(json.dumps([entry]), "a.json")) == [("a", ("1", "2", "3"), 1, "cm")]
    for by_name in ({"a": {"size": [1, 2, 3]}}, {"a": [1, 2, 3]}):
        for document in (by_name | {"unit": "cm"}, {"parts": by_name, "unit": "cm"}):
            assert rows(write(json.dumps(document), "a.json")) == [("a", ("1", "2", "3"), 1, "cm")]
    three = {name: {"value": 1.125, "unit": "CM"} for name in ("length", "width", "height")}
    entry = {"sku": "a", "dimensions": three, "weight": {"value": 1.5, "unit": "POUNDS"}}
    file = write(json.dumps({"items": [entry]}), "a.json")
    assert rows(file) == [("a", ("9/8", "9/8", "9/8"), 1, "cm")]
    assert read_parts(file)[0].handling == {"weight": 0.680388555}
    (part,) = read_parts(
        write("- {sides: [1, 2, 3], fragile: true, faces: ['+z', '-z']}", "a.yaml")
    )
    assert (part.handling, part.faces) == ({"fragile": True}, ("+z", "-z"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"sku": "a", "length": 1, "width": 2, "height": 3, "colour": 4}]', "part 1: 'colour'"),
        ('[{"length (cm)": 1, "width": 2, "height": 3, "unit": "mm"}]', "units differ: cm, mm"),
        ('[{"size": {"length": 1, "width": 2, "height": NaN}}]', "part 1: height=nan must be"),
        ('[{"size": [1, 2, 3], "qty": null}]', "part 1: qty is empty"),
        ('[{"size": {"length": 1, "width": 2, "height": 3}, "L": 9}]', "'length' and 'L' mean the"),
        ('[{"size": {"L": 1, "W": 2, "H": 3, "unit": "mm"}, "unit": "cm"}]', "'unit' and 'unit'"),
        ("parts: [{sides: 3x2x1}]\nitems: [{sides: 3x2x1}]\n", "write one list, alone or under"),
        ('[{"size": [1, 2, 3], "qty": 1, "count": 2}]', "'qty' and 'count' mean the same"),
        ("a: {sides: 3x2x1, name: b}\n", "part a: the columns 'name' and 'name' mean the same"),
        ("a: {sides: 3x2x1, colour: b}\n", "part a: 'colour' is not supported"),
        ('[{"size": [1, 2, 3], "L": 4}]', "'L': a box has three sides"),
        (
            "size: {length: 6, width: 4, height: 3}\n",
            "'size' is not the name of a part; write a list",
        ),
        ("parts: {sides: {L: 6, W: 4, H: 3}, name: {}}\n", "'sides' is not the name of a part"),
        ("name: {size: 6x4x3}\n", "'name' is not the name of a part; write a list of parts"),
        ("- {size: 3x2x1, nw: 4}\n- {size: 3x2x1, gw: 5}\n", "nw in some entries, gw in others"),
        ("a: {sides: 3x2x1}\nb: 4\n", "has no option a, b; known: boxes, items, parts, unit"),
        ('[{"dx": 1, "dy": 2, "dz": 3, "dx": 4}]', "dx is given twice"),
        ("Container: [4, 3, 2]\ncam: [1, 2, 3]\n", "'Container' is not the name of a part"),
        ("truck: [600, 240, 240]\ncrate: [60, 40, 30]\n", "'truck' is not the name of a part"),
        ("x: [1, 2, 3]\ny: [1, 2, 3]\nz: [1, 2, 3]\n", "'x' is not the name of a part"),
        ("cam: {size: 3x2x1}\nconatiner: [4, 3, 2]\n", "has no option cam, conatiner"),
        ("- {name: a, dx: 1, dy: 2,\n  dz: 3, dz: 5}\n", "line 2: dz is given twice"),
    ],
)
def test_documents_that_are_refused(text: str, message: str, write: Write) -> None:
    with pytest.raises(OrderError, match=message):
        rows(write(text, "a.json" if text.startswith("[") else "a.yaml"))


def test_sides_in_metres_are_exact() -> None:
    box = Part(sides=(Fraction(15, 2), 0.1, 3), unit="Inch")
    assert box.exact_sides == (Fraction(381, 2000), Fraction(254, 10**5), Fraction(762, 10**4))
    assert json.dumps(box.source)


def test_a_unit_that_contradicts_the_header_is_refused(write: Write) -> None:
    file = write("dx_mm,dy_mm,dz_mm\n1,2,3\n")
    assert rows(file, unit="MM")[0][3] == "mm"
    with pytest.raises(OrderError, match="states mm, but unit=cm is given"):
        rows(file, unit="cm")


@pytest.mark.parametrize(
    ("sides", "sizes", "unit"),
    [
        ("1' 6\",1',0' 9½\"", ("18", "12", "19/2"), "in"),
        ("2 ft 3 in,1ft,10in", ("27", "12", "10"), "in"),
        ("30cm,0.2m,100mm", ("300", "200", "100"), "mm"),
    ],
)
def test_sides_with_units_of_their_own_are_converted_to_the_last(
    sides: str, sizes: tuple[str, ...], unit: str, write: Write
) -> None:
    columns = ",".join('"' + side.replace('"', '""') + '"' for side in sides.split(","))
    assert rows(write(f"name,dx,dy,dz,quantity\nmug,{columns},6\n")) == [("mug", sizes, 6, unit)]
    joined = sides.replace(",", " x ").replace('"', '""')
    assert rows(write(f'name,sides\nmug,"{joined}"\n')) == [("mug", sizes, 1, unit)]
    # A column of units decides into which they are converted, in any order.
    in_mm = rows(write(f'name,sides,unit\nmug,"{joined}",mm\n'))
    assert in_mm[0][3] == "mm"
    scale = 1 if unit == "mm" else Fraction("25.4")
    assert in_mm[0][1] == tuple(str(Fraction(size) * scale) for size in sizes)


@pytest.mark.parametrize("sides", ["20 x 8 x 8' 6\"", "5 x 4 x 3 ft 6 in"])
def test_feet_and_inches_are_not_the_unit_of_other_sides(sides: str, write: Write) -> None:
    with pytest.raises(OrderError, match="give the unit of each side"):
        rows(write("sides\n" + '"' + sides.replace('"', '""') + '"\n'))
    with pytest.raises(ParameterError, match="or one after each length"):
        exact_container(sides)


PALLET, TRAILER = (1.2, 0.8, 1), (12.03, 2.35, 2.39)


@pytest.mark.parametrize(
    ("container", "text", "unit", "warns"),
    [
        (PALLET, "60,40,30,10\n", None, True),
        (PALLET, "600,400,300,1\n", None, False),
        (PALLET, "60,40,30,10\n", "mm", False),
        # cartons that take 1 % of the container, but are too long in centimetres
        (PALLET, "130,20,5,740\n", None, False),
        (PALLET, "12000,40,30,1\n", None, True),
        # 60 cm are a twentieth of the length, and meant
        (TRAILER, "600,400,300,900\n", None, False),
        (TRAILER, "1200,800,1000,20\n350,250,200,100\n", None, False),
        (TRAILER, "60,40,30,900\n", None, True),  # centimetres
        (TRAILER, "24,16,12,900\n", None, True),  # inches
    ],
)
def test_an_order_in_another_unit_than_the_container(
    container: tuple[float, ...],
    text: str,
    unit: str | None,
    warns: bool,
    write: Write,
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows(write(f"dx,dy,dz,quantity\n{text}"), unit=unit, container=container)
    assert ("no unit stated, read in mm" in caplog.text) == warns


SHEETS: dict[str, list[list[Any]]] = {
    "First": [["Item", "L (mm)", "W", "H", "Qty"], ["mug", 12, 10.0, 9, 6]],
    "Other": [["dx", "dy", "dz"], [0.1 + 0.2, 1, 2]],
    "Formula": [["dx", "dy", "dz"], ["=1+1", 1, 2]],
    "Titled": [
        ["Date", date(2026, 11, 28)],
        [],
        ["Item", "sides", "Qty", "Remarks"],
        ["mug", "12x10x9", 6],
    ],
    "Shipped": [["Item", "sides", "Qty", "Ship"], ["mug", "12x10x9", 6, date(2026, 12, 10)]],
    "Missing": [["Item", "sides", "Qty"], ["#N/A", "12x10x9", 6]],
    "Dated": [["Item", "sides", "Qty"], [date(2026, 12, 10), "12x10x9", 6]],  # Excel's 12-10
    "Marked": [["dx", "dy", "dz", "weight"], [12, 10, 9, 500]],
    "Marked wrongly": [["dx", "dy", "dz"], [12, 10, 9]],
    "Number": [["dx", "dy", "dz"], [1.225, 1, 2]],
    "Text": [["dx", "dy", "dz"], ["1.200", "1", "2"]],
    "Text, without 0 at the end": [["dx", "dy", "dz"], ["1.225", "1", "2"]],
    "Metres": [["dx (m)", "dy", "dz"], ["1.200", "1.800", "1.250"]],
    "Mixed": [["dx", "dy", "dz"], [1.225, "2,5", 2]],
    "Shown": [["name", "dx", "dy", "dz", "qty", "weight"], [7, 1.125, 10, 9, 6, 500]],
    "No header": [["mug", 1.2, 1, 0.9, 6]],
    "Shown aside": [["name", "sides", "qty", "value"], [4711, "12x10x9", 6, 7.5]],
    "Tiny": [["dx", "dy", "dz"], [0.000015, 1, 1]],
    "Merged": [["sides", "qty", "stop"], ["12x10x9", 6, 2], ["1x1x1", 6]],
    "Merged aside": [["Pos", "sides", "qty", "Notes"], [1, "12x10x9", 6], [None, "1x1x1", 6]],
    "Beside": [["dx", None, "dy", None, "dz", None], [1.125, "mm", 2, "mm", 3, "mm"]],
}


def test_workbooks(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book, file = openpyxl.Workbook(), tmp_path / "a.xlsx"
    book.remove(book.active)
    for title, lines in SHEETS.items():
        page = book.create_sheet(title)
        for cells in lines:
            page.append(cells)
    book["Merged"].merge_cells("C2:C3")
    for area in ("A2:A3", "D1:D3"):
        book["Merged aside"].merge_cells(area)
    formats = ("000", '0.000" cm"', '#,##0\\ "cm"', '0" CM";-0" CM"', '0" pcs"', '0.0 "g"')
    for cell, shown in zip(book["Shown"][2], formats, strict=True):
        cell.number_format = shown
    for cell, shown in zip(
        book["Shown aside"][2], ('0" mm"', "", '0" t"', '0.00" m"'), strict=True
    ):
        cell.number_format = shown or cell.number_format
    for cell, shown in zip(
        book["No header"][1][1:4], (r'#\.##0.0" cm"', r"0\-0\c\m", r"0.0\ \c\m"), strict=True
    ):
        cell.number_format = shown
    for cell, shown in zip(
        book["Marked"][2], (r"0\ \m\m", r'0\m"m"', r"0_ \m\m", r"General\ \g"), strict=True
    ):
        cell.number_format = shown
    book["Marked wrongly"]["A2"].number_format = r"0\d\m"
    for cell in book["Tiny"][2]:
        cell.number_format = '0.0" m"'
    book.save(file)
    assert rows(file) == rows(f"{file}:Titled") == MUG
    assert len(rows(f"{file}:Merged aside")) == 2
    (marked,) = read_parts(f"{file}:Marked")
    assert (marked.unit, marked.handling) == ("mm", {"weight": 0.5})
    assert rows(f"{file}:Number")[0][1] == ("49/40", "1", "2")
    assert rows(f"{file}:Other")[0][1] == ("3/10", "1", "2")
    assert rows(f"{file}:Metres")[0][1] == ("6/5", "9/5", "5/4")
    assert rows(f"{file}:Beside")[0][1] == ("9/8", "2", "3")
    assert rows(f"{file}:No header") == MUG_CM
    assert rows(f"{file}:Shown") == [("007", ("9/8", "10", "9"), 6, "cm")]
    assert read_parts(f"{file}:Shown")[0].handling == {"weight": 0.5}
    assert rows(f"{file}:Shown aside") == [("4711", *MUG[0][1:])]
    assert read_parts(f"{file}:Shown aside")[0].handling == {"value": 7.5}
    assert rows(f"{file}:Tiny") == [("1.5e-05x1x1", ("3/200000", "1", "1"), 1, "m")]
    assert rows(f"{file}:Mixed")[0][1] == ("49/40", "5/2", "2")
    assert rows(f"{file}:Shipped", columns={"Ship": ""}) == MUG
    for title, message in {
        "Shipped": "'Ship' is not supported",
        "Missing": "line 2: A2 is #N/A",
        "Marked wrongly": "line 2: dx='12 dm' must be a length: unit='dm' is unknown",
        "Text": "or 1200: write thousands",
        "Text, without 0 at the end": "or 1225: write thousands .* store it as a number",
        "Dated": "line 2: A2 is a date",
        "Merged": "line 3: C3 is merged with C2; write the value in each row",
        "Formula": "formula of A2 has no value",
        "Othr": "no sheet 'Othr', did you mean Other",
    }.items():
        with pytest.raises(OrderError, match=message):
            rows(f"{file}:{title}")
    book.create_sheet("Cover", 0).append(["Packing list"])
    book.save(file)
    with pytest.raises(OrderError, match=r"sheet Cover is read, not First, .*a\.xlsx:NAME reads"):
        rows(file)


REFUSED = {
    "--clearance 5": "clearance='5' needs a unit",
    "--clearance 600mm": "leaves no room in a container of 1 x 1 m; give less than 0.5 m",
    "--weight-limit 3ton": "'ton' may be 1000 kg, 2000 lb or 2240 lb",
    "--weight-limit 400kg": "weight_limit: the weight of a is missing; add a column weight",
    "--weight-limit 0": "weight_limit: the weight of a is missing; add a column weight",
    "--support 80": "write 80% or 0.8",
    "--support 80kg": "must be a share, as in 80% or 0.8",
    "--balance 60%": "balance=0.6 must be a finite number, at least 0 and at most 0.5",
    "--preplaced 1x1m": "preplaced='1x1m' must be 3 lengths",
    "--preplaced 60x50x20cm@50,50,50": "reaches out of the container",
    "--choose cheapest": "no cost is given for 1 x 1 x 1 m",
    "--seconds 0": "seconds=0.0",
    "--out a.csv": "--out=a.csv is a file; name a folder",
    "--out a.csv/packed": "--out=a.csv/packed cannot be written: you cannot write to",
    "--stability comhull": "stability='comhull' is unknown, did you mean com_hull",
    "draco.glb": "draco.glb: needs the extension KHR_draco_mesh_compression",
    "nofile.stl": "nofile.stl: no such file",
    "a.ods": "a.ods: is not read; save it as XLSX or CSV",
    "--container a.xls": "a.xls: is not read; save it as XLSX or CSV",
    "--container 1x1x1mmm": "did you mean mm",
    "--unit milimeter": "did you mean millimeter",
    "--second 5": "unknown option --second; did you",
    "--contaner 1x1x1m": "unknown option --contaner; did you mean --container",
}


def test_wrong_options_are_refused_without_torch(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,dx,dy,dz\na,1,2,3\n", encoding="utf-8")
    content = json.dumps({"extensionsRequired": ["KHR_draco_mesh_compression"]}).encode()
    size = struct.pack("<4sIII4s", b"glTF", 2, 20 + len(content), len(content), b"JSON")
    (tmp_path / "draco.glb").write_bytes(size + content)
    for name in ("a.ods", "a.xls"):
        (tmp_path / name).touch()
    script = f"""
import sys
from agents.cli import main as cli
for words in {list(REFUSED)!r}:
    try:
        code = cli.main(["pack", "a.csv", *words.split(), "--container", "1x1x1m"])
    except SystemExit as stop:
        code = stop.code
    assert code == 2, words
assert "torch" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for message in REFUSED.values():
        assert message in done.stderr


def test_the_stability_of_an_order_is_a_rule_that_parts_can_satisfy() -> None:
    assert {*STABILITY} - {"stands"} == {*BUILT_IN} - {"stacking_tree"}


@pytest.mark.parametrize(
    ("given", "same"),
    [("400kg", 400), ("400", 400), ("0.4t", 400), ("2 lb", 0.90718474), ("1,5kg", 1.5)],
)
def test_weight_limits_with_units(given: str, same: float) -> None:
    assert read_options({"weight_limit": given}) == {"weight_limit": same}
    container = f"1x1x1m,weight_limit={given},number=2"
    assert read_containers(container)[0].weight_limit == same
    assert ContainerType("1x1x1m", weight_limit=given).weight_limit == same


def test_a_single_preplaced_box_needs_no_list() -> None:
    box = "50x40x20mm@0,0,0"
    assert read_options({"preplaced": box}) == read_options({"preplaced": [box]})


def test_shares_with_percent_signs() -> None:
    assert read_options({"support": "100%", "balance": "10 %"}) == {"support": 1, "balance": 0.1}
    assert read_options({"support": "0,8", "balance": 0.5}) == {"support": 0.8, "balance": 0.5}


@pytest.mark.parametrize("given", ["0mm", "0 in", 0.0])
def test_no_clearance_may_be_said(given: str | float) -> None:
    for key in ("clearance", "wall_clearance"):
        assert read_options({key: given}) == {key: 0.0}
        with pytest.raises(ParameterError, match=f"{key}='-1mm'"):
            read_options({key: "-1mm"})


def test_files_in_a_folder_that_are_no_parts_are_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """System files, hidden files and files of an earlier plan are skipped; others with a line."""

    def add(*names: str) -> None:
        for name in names:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text("", encoding="utf-8")
        assert [part.name for part in read_parts(str(tmp_path))] == ["a", "packed", "positions"]

    add("._a.stl", ".DS_Store", "Thumbs.db", "a.stl", "positions.stl", ".old/b.stl", ".c.stl",
        "other/packed.stl")  # fmt: skip
    assert not caplog.text
    outputs = ("plan.json", "positions.csv", "packed.html", "packed.glb", "packed-2.stl")
    add(*(f"packed/{name}" for name in outputs))
    (line,) = (record.message for record in caplog.records)
    assert str(tmp_path / "packed") in line
    add("b.step")
    assert "not read: b.step; convert STEP" in caplog.text
    (tmp_path / "link").symlink_to(tmp_path / "other")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    add(*(f"c{number}.txt" for number in range(8)))
    assert "c6.txt and 3 more (.txt, link, loop); convert STEP" in caplog.text
    (tmp_path / "b.stl").symlink_to(tmp_path / "moved.stl")
    add()
    assert "not read: b.step, b.stl, c0.txt" in caplog.text
    assert "convert STEP" in caplog.text
    assert "mend links to missing files" in caplog.text
    for name, remedy in (("b.step", "convert STEP"), ("b.zip", "unpack"), ("b.gltf", "single GLB")):
        (tmp_path / name).touch()
        with pytest.raises(ValueError, match=remedy):
            read_parts(str(tmp_path / name))[0].load()
