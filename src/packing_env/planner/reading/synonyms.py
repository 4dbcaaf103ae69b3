"""Names of columns and words of cells, in English and in other languages of the trade.

:func:`plain` removes capitals, accents and separators before a name is looked up, so a name is
listed once: ``lange`` is Länge. Letters that are not an accented form (ß, ø) stay; ł becomes l.
"""

from __future__ import annotations

import re
import unicodedata

_SYNONYMS = {
    "length": "l len lange laenge longueur long largo longitud lunghezza lung lengte dlugosc dl "
    "comprimento",
    "width": "w b breadth breite br largeur larg ancho anchura larghezza breedte szerokosc szer "
    "largura",
    "depth": "d t thickness tiefe profondeur prof profundidad fondo profondita spessore epaisseur "
    "espesor grosor dicke starke diepte dikte glebokosc grubosc profundidade espessura",
    "height": "h hohe hoehe hauteur haut alto altura altezza hoogte wysokosc wys",
    "x": "dx size_x",
    "y": "dy size_y",
    "z": "dz size_z",
    "sides": "size dimensions dims abmessungen abmessung maße dimensiones medidas dimensioni "
    "dimensoes misure afmetingen wymiary lxbxh l_x_b_x_h lxwxh l_x_w_x_h lxlxh l_x_l_x_h",
    "quantity": "qty count pcs pieces menge anzahl stuck stueck stk stuckzahl stueckzahl quantite "
    "qte nombre_de_pieces nb cantidad cant piezas uds quantita qta q.ta pezzi pz aantal stuks "
    "ilosc liczba szt sztuk sztuki quantidade qtd qtde",
    "name": "description sku item article part label product bezeichnung artikel beschreibung "
    "artikelbezeichnung artikelnummer artikelnr art._nr produkt teil designation nom libelle "
    "reference produit descripcion articulo referencia producto nome descrizione articolo "
    "codice prodotto naam omschrijving artikelcode beschrijving nazwa opis artykul towar indeks "
    "descricao artigo produto",
    "file": "filename path mesh datei fichier archivo bestand plik",
    "unit": "units uom einheit unite unidad unita eenheid jednostka",
    "weight": "mass wt gewicht masse stuckgewicht stueckgewicht poids peso masa waga gross_weight "
    "bruttogewicht poids_brut peso_bruto peso_lordo brutogewicht waga_brutto",
    "max_load": "traglast auflast max_auflast charge_max carga_max carico_max max_belasting",
    "stackable": "stapelbar gerbable empilable apilable impilabile sovrapponibile stapelbaar",
    "fragile": "zerbrechlich fragil breekbaar kruche",
    "group": "gruppe groupe grupo gruppo groep grupa",
    "priority": "prioritat prioritaet priorite prioridad priorita prioriteit priorytet",
    "value": "wert valeur valor valore waarde wartosc",
    "number": "number_of_containers",
    "cost": "price kosten preis cout prix coste costo precio prezzo prijs koszt cena",
    "weight_limit": "payload max_weight nutzlast zuladung charge_utile carga_util portata "
    "laadvermogen ladownosc",
}  # fmt: skip
MEANING = {word: key for key, words in _SYNONYMS.items() for word in (key, *words.split())}
"""The key that each name of a column means."""
_YES = "true yes y 1 x ja j wahr oui vrai si verdadero vero tak sim"
_NO = "false no n 0 nein falsch non faux falso nee nie nao"
YES_NO = dict.fromkeys(_YES.split(), True) | dict.fromkeys(_NO.split(), False)
"""Words of a cell that is true or false."""
PIECES = (
    "pcs", "pc", "piece", "pieces", "each", "ea", "stk.", "stk", "stuck", "st.", "st", "szt.",
    "szt", "uds", "ud", "pz",
)  # fmt: skip
"""Units of a quantity."""
TOTALS = (
    "total", "totals", "sum", "subtotal", "grand_total", "summe", "gesamt", "gesamtsumme",
    "zwischensumme", "somme", "totaux", "suma", "totale", "somma", "totaal", "som", "razem",
    "lacznie",
)  # fmt: skip
"""Words that mark a row of totals."""
IN = ("_in", "_en", "_w")
"""Words between a name and a unit: Gewicht in kg, poids en kg, waga w kg."""


def plain(text: str) -> str:
    """Return a name in lower case without accents, with one underscore between words."""
    letters = unicodedata.normalize("NFKD", text.strip().strip("#").strip().lower())
    letters = "".join(c for c in letters if not unicodedata.combining(c))
    letters = letters.replace("ł", "l").replace("\u00d7", "x")
    return re.sub(r"[\s_/-]+", "_", letters).strip("_.:")
