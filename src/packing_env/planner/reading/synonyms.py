"""Names of columns and words of cells, in English and in other languages of the trade.

Names are compared in the form of :func:`plain`: without capitals, accents and separators. Letters
such as ß and ø are kept; ł becomes l.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from packing_env.values import keyboard_signs

AXES = (
    ("x", "y", "z"), ("length", "width", "height"), ("width", "depth", "height"),
    ("length", "depth", "height"), ("length", "width", "depth"),
)  # fmt: skip
"""Sets of column names that mean ``dx, dy, dz``."""
_ORDERS = (*AXES, ("width", "length", "height"))
"""Orders of sides in one cell that end with the height; ``turn`` keeps the first along x."""
_SYNONYMS = {
    "length": "l len länge laenge longueur long largo longitud lunghezza lung lengte długość dł "
    "comprimento длина дл 长 长度 長 長度 長さ 縦 たて "
    "uzunluk boy délka längd længde lengde hossz hosszúság pituus 길이 세로",
    "width": "w b breadth breite br largeur larg ancho anchura larghezza breedte szerokość szer "
    "largura ширина шир 宽 宽度 寬 寬度 幅 横 "
    "genişlik en šířka bredd bredde wide szélesség leveys 폭 너비 가로",
    "depth": "d t thickness tiefe profondeur prof profundidad fondo profondità spessore épaisseur "
    "espesor grosor dicke stärke diepte dikte głębokość grubość profundidade espessura глубина "
    "толщина 深 深度 深さ 奥行 奥行き 厚 厚度 厚さ 厚み "
    "derinlik hloubka djup dybde deep mélység vastagság syvyys paksuus 깊이 두께",
    "height": "h höhe hoehe hauteur haut alto altura altezza hoogte wysokość wys высота выс 高 "
    "高度 高さ "
    "yükseklik výška höjd højde høyde high tall magasság korkeus 높이",
    "x": "dx size_x",
    "y": "dy size_y",
    "z": "dz size_z",
    "sides": "size dimension dimensions dims measurement measurements abmessungen abmessung maße "
    "dimensiones medidas dimensioni dimensões misure afmetingen wymiary "
    "lxlxh l_x_l_x_h размер размеры габариты дxшxв 尺寸 规格 規格 外寸 サイズ 寸法 "
    "长宽高 長寬高 "
    "ölçüler rozměry mått mål meas dim 外箱尺寸 纸箱尺寸 外箱规格 "
    "méret méretek mitat koko 크기 사이즈 치수 규격",
    "quantity": "qty q count pcs pieces ordered_qty order_qty order_quantity qty_ordered "
    "quantity_ordered no_of_pcs no_of_pieces number_of_pieces menge anzahl stück stueck stk "
    "stückzahl stueckzahl quantité qté nombre_de_pièces nb cantidad cant piezas uds quantità "
    "q.tà pezzi pz aantal stuks ilość liczba szt sztuk sztuki quantidade qtd qtde количество "
    "кол-во кол шт штук 数量 數量 个数 個数 件数 件數 箱数 台数 枚数 "
    "adet miktar množství počet antal antall liefermenge mennyiség darab darabszám db määrä "
    "kpl lukumäärä 수량 개수",
    "row": "pos position line no nr lfd_nr ligne num "
    "núm riga regel lp l.p № №_п/п n° n.º 序号 序號 番号 行番号 sorszám rivi 번호 순번",
    "name": "description sku item id ref code model title article part label product goods cargo "
    "commodity material kurztext materialkurztext bezeichnung artikel beschreibung item_no "
    "item_number item_code part_no part_number product_code product_no product_name article_no "
    "artikelbezeichnung artikelnummer artikelnr artikel_nr art._nr produkt teil désignation nom "
    "libellé référence réf produit código descripción artículo referencia producto nome "
    "descrizione articolo codice cod prodotto naam omschrijving artikelcode beschrijving nazwa "
    "opis artykuł towar indeks descrição artigo produto название наименование артикул товар "
    "номенклатура описание деталь 名称 名稱 名前 品名 品番 商品 商品名 商品名称 产品 产品名称 "
    "產品名稱 货物 货物名称 货名 物料 型号 部品 部品名 "
    "ürün malzeme açıklama název položka artikl benämning vare varenavn megnevezés név cikk "
    "cikkszám termék terméknév leírás nimi nimike tuote tuotenimi tuotekoodi kuvaus 품명 품목 품번 "
    "제품 제품명 상품 상품명 이름",
    "file": "filename file_name path mesh datei fichier archivo bestand plik файл 文件 檔案 "
    "ファイル",
    "unit": "units uom dimension_unit dimension_units dimensions_unit dim_unit dim_uom "
    "dimension_uom size_unit size_uom length_unit length_uom me mengeneinheit "
    "unit_of_dimension abmessungseinheit längeneinheit maßeinheit einheit unité unidad unità "
    "eenheid jednostka единица единица_измерения ед._изм 单位 單位 単位 "
    "birim jednotka enhet enhed mértékegység yksikkö 단위",
    "weight": "mass wt unit_weight weight_pc weight_pcs weight_each gewicht masse gross_wt "
    "gross_mass g.w g_w gw stückgewicht stueckgewicht poids peso masa waga gross_weight "
    "bruttogewicht poids_brut peso_bruto peso_lordo brutogewicht waga_brutto вес масса "
    "вес_брутто масса_брутто 重量 重さ 毛重 单重 單重 质量 質量 kg gew "
    "ağırlık hmotnost váha vikt vekt vægt poids_unitaire peso_unitario einzelgewicht súly tömeg "
    "bruttó_súly bruttó_tömeg paino massa bruttopaino 무게 중량 총중량",
    "weight_unit": "weight_units weight_uom wt_uom wt_unit unit_of_weight gewichtseinheit gew.einh "
    "unité_de_poids unidad_de_peso unità_di_peso gewichtseenheid 重量单位 重量單位 重量単位",
    "max_load": "traglast auflast max_auflast charge_max carga_max carico_max max_belasting "
    "нагрузка макс_нагрузка максимальная_нагрузка 承重 最大承重 最大载荷 耐荷重 最大荷重",
    "stackable": "stapelbar gerbable empilable apilable impilabile sovrapponibile stapelbaar "
    "штабелируется 可堆叠 可堆疊 段積み可",
    "no_stacking": "do_not_stack don't_stack dont_stack no_stack non_stackable not_stackable "
    "nicht_stapelbar nicht_stapeln unstapelbar ne_pas_gerber non_gerbable no_apilar no_apilable "
    "não_empilhar não_empilhável non_impilare non_impilabile non_sovrapponibile niet_stapelen "
    "niet_stapelbaar nie_piętrować не_штабелировать 不可堆叠 不可堆疊 段積み不可",
    "upright": "keep_upright this_side_up this_way_up do_not_tilt no_tilt aufrecht stehend "
    "nicht_kippen nicht_kanten debout ne_pas_coucher vertical de_pie no_volcar in_piedi "
    "non_capovolgere rechtop niet_kantelen pionowo nie_przewracać de_pé não_tombar "
    "не_кантовать вертикально 不可倒置 请勿倒置 天地無用 横積み不可",
    "tiltable": "tippable can_be_tilted can_tilt tilting_allowed kippbar kantbar umlegbar "
    "basculable inclinable ribaltabile kantelbaar",
    "fragile": "zerbrechlich fragil breekbaar kruche хрупкий хрупкое 易碎 易碎品 割れ物 壊れ物 "
    "törékeny särkyvä 파손주의",
    "group": "stop delivery_stop drop gruppe stopp groupe grupo gruppo groep grupa группа 组 分组 "
    "組 グループ",
    "priority": "priorität prioritaet priorité prioridad priorità prioriteit priorytet приоритет "
    "优先级 優先級 優先順位 優先度",
    "value": "wert valeur valor valore waarde wartość ценность 价值 價值 価値",
    "number": "number_of_containers available",
    "cost": "price kosten preis coût prix coste costo precio prezzo prijs koszt cena цена "
    "стоимость 价格 成本 費用 価格",
    "weight_limit": "payload max_payload maximum_payload max_weight nutzlast zuladung "
    "charge_utile carga_útil portata laadvermogen ładowność грузоподъёмность макс_вес 载重 "
    "最大载重 載重 最大積載量",
}  # fmt: skip
_YES = (
    "true yes y on 1 x ✓ ✔ ja j wahr oui vrai si verdadero vero tak sim evet ano igen kyllä да 是 "
    "可 はい 예"
)
_NO = (
    "false no n off 0 nein falsch non faux falso nee nie nao nej hayır ne nem ei нет 否 不可 "
    "いいえ 아니요 아니오"
)
_NET = (
    "net_weight net_wt net_mass n.w n_w nw nettogewicht poids_net peso_neto peso_netto "
    "peso_líquido waga_netto вес_нетто масса_нетто 净重 淨重 正味重量 nettó_súly "
    "nettó_tömeg nettopaino 순중량"
)
_HUNGARIAN = (
    "hossz hosszúság szélesség magasság mélység megnevezés cikk cikkszám mennyiség darab darabszám "
    "súly tömeg név termék terméknév leírás méret méretek db"
)
_PACKAGES = (
    "boxes cartons ctns cases packages pkgs parcels crates kartons kisten pakete packstücke colli "
    "kolli colis bultos cajas scatole"
)
_NUMBERS_OF = (
    "", "no_of_", "number_of_", "nr_of_", "anzahl_", "nb_", "nb_de_", "nombre_de_", "numero_de_",
    "aantal_",
)  # fmt: skip
_COUNTS = (
    "x pcs pc pce piece pieces items each ea nos unit units stk stück stueck st szt uds ud pz adet "
    "шт штук 个 個 件 台 本 枚 只 db kpl 개"
)
_PACKAGE = (
    "box carton ctn case package pkg parcel crate pallet karton kiste paket caja koli colis 箱 박스"
)
_TOTALS = (
    "total totals sum subtotal grand_total summe gesamt gesamtsumme zwischensumme somme "
    "totaux suma totale somma totaal som razem łącznie итого всего 合计 合計 总计 總計 総計 "
    "小计 小計 összesen yhteensä 합계 총계 소계"
)
_GOODS = (
    "box", "carton", "ctn", "case", "package", "pkg", "parcel", "pallet", "piece", "item",
    "product", "lineitem", "outer", "outside", "external",
)  # fmt: skip
"""Words before a name of a column that add nothing to it, as in ``Package length``."""
_COUNTED = ("item", "product", "lineitem")
"""The words of `_GOODS` that may precede a quantity; a ``Case quantity`` counts what is inside."""
_OF_GOODS = (
    "length", "width", "height", "depth", "sides", "weight", "name", "row", "unit", "weight_unit",
)  # fmt: skip
IN = ("_in", "_en", "_w", "_в")
"""Words between a name and a unit: Gewicht in kg, poids en kg, waga w kg."""
_PLAIN = str.maketrans("łı", "li")
_SIGN = r"[\s_.-]*[x*][\s_.-]*"
_ORDER = re.compile(
    rf"(?<![^\W\d_])(?=([^\W\d_x]+){_SIGN}([^\W\d_x]+){_SIGN}([^\W\d_x]+))", re.IGNORECASE
)
"""Three names of sides, perhaps beside other words, as in ``Box L x W x H (cm)``."""
_IN_ORDER = re.compile(r"\bin\s+$", re.IGNORECASE)
"""The word before an order, as in ``Size in LxWxH``, where it is not inches."""
_PER = re.compile(r"(?:/|(?<![^\W_])(?:per|pro|par|por)[\s_-])\s*([^\W_]+)\.?", re.IGNORECASE)
"""``per`` or a slash in a title, and the word after it."""
_INSIDE = re.compile(
    r"(?:^|[\s_,]+)(?:inside|inner|internal|interior|usable|innen)(?![^\W_])[\s_]*", re.IGNORECASE
)
"""Words of a title for the room in a container, as in ``Inside length``."""
_CONTAINERS = ("type", "container", "container_type", "typ", "containertyp", "equipment")
"""Titles of the names of containers."""
_EMPTY = re.compile(r"[(\[]\s*[)\]]")
_TIMES = re.compile(r"(?<=\w)\s*\*\s*(?=\w)")
_CAMEL = re.compile(r"(?<=[a-z]{2})(?=[A-Z])")
"""The places of underscores in lengthCm; not in LxWxH or UoM."""
_VOICED = "\u3099\u309a"
"""Marks that turn a kana into another letter, as Ku into Gu; they are not accents."""


def plain(text: str) -> str:
    """Return a name in lower case without accents, with one underscore between words."""
    words = _CAMEL.sub("_", text.strip().strip("#").strip())
    letters = unicodedata.normalize("NFKD", words.lower())
    letters = "".join(c for c in letters if c in _VOICED or not unicodedata.combining(c))
    letters = keyboard_signs(unicodedata.normalize("NFC", letters)).translate(_PLAIN)
    return re.sub(r"\.?[\s_/,-]+", "_", _TIMES.sub("x", letters)).strip("_.:?*")


PACKAGES = frozenset(number + plain(w) for number in _NUMBERS_OF for w in _PACKAGES.split())
"""Names of columns that count packages: ``cartons``, ``No. of cartons``."""
HUNGARIAN = frozenset(map(plain, _HUNGARIAN.split()))
"""Names of columns of Hungarian lists; Western encodings have their letters, too."""
NET = frozenset(map(plain, _NET.split()))
"""Names of columns of net weights; they are weights if no other column is one."""
MEANING = {
    plain(word): key for key, words in _SYNONYMS.items() for word in (key, *words.split())
} | {**dict.fromkeys(PACKAGES, "quantity"), **dict.fromkeys(NET, "weight")}
"""The key that each name of a column means."""


def same_title(title: str) -> str:
    """Return a title without the differences that do not matter when the user names it."""
    return " ".join(title.split()).casefold()


def meaning(word: str) -> str:
    """Return the key that a name of a column means; the name itself if it is unknown.

    The name is in the form of :func:`plain`.
    """
    if word in MEANING:
        return MEANING[word]
    goods, _, rest = word.partition("_")
    key = MEANING.get(rest, rest)
    counts = key == "quantity" and goods in _COUNTED
    if counts or (goods in _GOODS and key in _OF_GOODS):
        return key
    return MEANING.get(word.replace("_", ""), word)  # ArtikelNummer


def without_order(title: str) -> str:
    """Return a title with ``size`` for the order of the sides, as in ``Package LxWxH (cm)``.

    Beside a name of the sides, as in ``Dimensions (L x W x H)``, the order goes.
    """
    text = keyboard_signs(title)
    for order in _ORDER.finditer(text):
        if tuple(meaning(plain(word)) for word in order.groups()) in _ORDERS:
            parts = text[: order.start()], text[order.end(3) :].lstrip(".:")
            before, after = (re.sub(r"[()\[\]]", " ", each) for each in parts)
            before = _IN_ORDER.sub("", before) if parts[0].endswith(" ") else before
            word = plain(f"{before} {after}")
            named = any(meaning(each) == "sides" for each in (word, *word.split("_")))
            return f"{before} {'' if named else 'size'} {after}"
    return title


def without_package(title: str) -> str:
    """Return a title without the package or piece of a weight, as in ``G.W./ctn (kg)``.

    The weight of a pallet is not that of a row's box, so ``per pallet`` stays.
    """
    words, boxes = _CAMEL.sub("_", title), COUNTS | SINGLE | {"item"}
    for each in _PER.finditer(words):
        if plain(each[1]) in boxes - {"pallet"}:
            return _EMPTY.sub("", words[: each.start()] + words[each.end() :])
    return title


def of_container(title: str) -> str:
    """Return a title in a table of containers without the word for the room in them."""
    name = _INSIDE.sub(" ", _CAMEL.sub("_", title)).strip() or title
    return "name" if plain(name) in _CONTAINERS else name


def inside_of(title: str, stem: str) -> frozenset[str]:
    """Return the packages of which a title counts what is inside, as ``pcs/carton`` does.

    A plural after a neutral word, as in ``Qty/cartons``, counts the packages themselves.
    """
    counted = stem.rpartition("_")[2] in PIECES - {"packages"}
    return (PIECES - COUNTS if counted else SINGLE) if "/" in title else frozenset()


def numbers_goods(word: str) -> bool:
    """Return whether a name of row numbers names what it numbers, as in ``Carton No.``."""
    return word.partition("_")[0] in _GOODS


YES_NO = dict.fromkeys(map(plain, _YES.split()), True) | dict.fromkeys(
    map(plain, _NO.split()), False
)
"""Words of a cell that is true or false."""
COUNTS = frozenset(map(plain, _COUNTS.split()))
"""Units of a quantity, also before it; a ``Box 12`` may be a box of 12."""
SINGLE = frozenset(map(plain, _PACKAGE.split()))
"""One package; ``pcs/carton`` counts the pieces in it."""
PIECES = COUNTS | SINGLE | PACKAGES | {"pallets"}
"""Units after a quantity."""
_COUNT = re.compile(r"(?:([^\W\d_][^\d+-]*)|\*\s*)?([+-]?\d(?:.*\d)?[.,]?)\s*([^\W\d_]\D*)?")
_DASHES = frozenset(("-", "--", "---", "–", "—"))
_BLANK = _DASHES | {"n/a", "n.a.", "na", "null", "k.a."}
"""Words of a cell without a value; not ``none`` or ``nil``, which may be 0."""
_NOT_BLANK = {
    "name": _BLANK,
    "together": {"na", "null"},
    **dict.fromkeys(("max_load", "weight_limit", "layers", "stackable"), _DASHES),
}
"""Blank words that may be labels, or dashes that may be 0 or no, by key."""
TOTALS = frozenset(plain(word).replace("_", "") for word in _TOTALS.split())
"""Words that mark a row of totals, without underscores."""


def is_blank(key: str, value: Any) -> bool:
    """Return whether a cell has no value, as with ``-`` or ``N/A``; names are kept."""
    word = str(value).strip().lower()
    return value in ("", None) or (word in _BLANK and word not in _NOT_BLANK.get(key, ()))


def is_yes_no(text: str) -> bool:
    """Return whether a text is a word for yes and one for no, as in ``Y/N``."""
    return sorted(YES_NO.get(word, 2) for word in plain(text).split("_")) == [False, True]


def without_pieces(count: str) -> str:
    """Return the number of a quantity such as ``12 pcs``, ``pcs 12``, ``x12`` or ``12x``."""
    match = _COUNT.fullmatch(keyboard_signs(count).strip())
    named = match and plain(match[1] or "x") in COUNTS and plain(match[3] or "x") in PIECES
    return match[2] if match and named else count
