"""Replays of an episode step by step, as a GIF or as one HTML file with a slider."""

from __future__ import annotations

import base64
import html
import io
import json
import string
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from packing_env.plan import Packing, whole_file
from packing_env.render.figures import require, title_of
from packing_env.render.scene import image


def frames(packing: Packing, size: int) -> Iterator[tuple[Packing, np.ndarray]]:
    """Yield the packing and its picture when empty and after each item."""
    for count in range(len(packing.items) + 1):
        part = packing.first(count)
        yield part, image(part, size)


def save_gif(
    path: str | Path, packing: Packing, *, size: int = 360, seconds_per_step: float = 0.4
) -> None:
    """Write an episode as a looping GIF; the last frame stays longer."""
    pillow = require("PIL.Image")
    pictures = [pillow.fromarray(picture) for _, picture in frames(packing, size)]
    palette = pictures[-1].quantize(255, dither=pillow.Dither.NONE)
    pictures = [p.quantize(palette=palette, dither=pillow.Dither.NONE) for p in pictures]
    step = int(1000 * seconds_per_step)
    with whole_file(path) as draft:
        pictures[0].save(
            draft,
            format="gif",
            save_all=True,
            append_images=pictures[1:],
            duration=[step] * (len(pictures) - 1) + [6 * step],
            loop=0,
        )


def save_html(path: str | Path, packing: Packing, *, title: str = "", size: int = 560) -> None:
    """Write an episode as one HTML file with a slider; it embeds its pictures, needs no network."""
    pictures, captions = [], []
    for part, picture in frames(packing, size):
        pictures.append(_png(picture))
        captions.append(_caption(part))
    page = _PAGE.substitute(
        title=html.escape(title or "Packing, step by step"),
        size=size,
        pictures=json.dumps(pictures),
        captions=json.dumps(captions).replace("<", "\\u003c"),
    )
    with whole_file(path) as draft:
        draft.write_text(page, encoding="utf-8")


def _png(picture: np.ndarray) -> str:
    """Encode a picture as a PNG with its own palette, in base64."""
    data = io.BytesIO()
    pillow = require("PIL.Image")
    drawn = pillow.fromarray(picture).quantize(255, dither=pillow.Dither.NONE)
    drawn.save(data, format="png", optimize=True)
    return base64.b64encode(data.getvalue()).decode("ascii")


def _caption(packing: Packing) -> str:
    if not packing.items:
        return "The empty container"
    last = packing.items[-1]
    x, y, z = (100 * length for length in (*np.multiply(last.cell, packing.pitch), last.z))
    return (
        f"{last.name} at ({x:.1f}, {y:.1f}, {z:.1f}) cm, {100 * last.support_ratio:.0f} % "
        f"supported.  {title_of(packing)}"
    )


_PAGE = string.Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>$title</title>
<style>
body{font:15px/1.5 system-ui,sans-serif;color:#222;padding:0 1rem}
body{margin:2rem auto;max-width:${size}px}
h1{font-size:1.2rem;font-weight:600}img{width:100%;display:block}
.controls{display:flex;gap:.7rem;align-items:center}input{flex:1}
button{font:inherit;min-width:4.5rem}#caption{min-height:3em;color:#444}
</style></head><body>
<h1>$title</h1>
<img id="picture" alt="The container">
<div class="controls"><button id="play">Play</button>
<input id="step" type="range" min="0" value="0" aria-label="Step"><output id="count"></output></div>
<p id="caption"></p>
<script>
const pictures=$pictures,captions=$captions,last=pictures.length-1;
const get=id=>document.getElementById(id),step=get("step");let timer=null;
function show(){const i=+step.value;get("picture").src="data:image/png;base64,"+pictures[i];
get("caption").textContent=captions[i];get("count").textContent=i+" / "+last}
function stop(){clearInterval(timer);timer=null;get("play").textContent="Play"}
function tick(){if(+step.value>=last){stop();return}step.value=+step.value+1;show()}
get("play").onclick=()=>{if(timer){stop();return}if(+step.value>=last)step.value=0;show();
timer=setInterval(tick,500);get("play").textContent="Pause"};
step.max=last;step.value=last;step.oninput=()=>{stop();show()};show();
</script></body></html>
""")
