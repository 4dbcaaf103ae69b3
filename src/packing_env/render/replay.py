"""Replays of an episode step by step, as a GIF or an MP4."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from packing_env.extras import check, require
from packing_env.plan import Packing, whole_file
from packing_env.render.scene import image

SECONDS_PER_STEP = 0.4


def _frames(packing: Packing, size: int) -> list[np.ndarray]:
    """Draw the container when it is empty and after each item."""
    return [image(packing.first(count), size) for count in range(len(packing.items) + 1)]


def save_gif(path: str | Path, packing: Packing, *, size: int = 360) -> None:
    """Write an episode as a looping GIF; the last frame stays longer."""
    pillow = require("PIL.Image", "GIF files")
    pictures = [pillow.fromarray(picture) for picture in _frames(packing, size)]
    palette = pictures[-1].quantize(255, dither=pillow.Dither.NONE)
    pictures = [p.quantize(palette=palette, dither=pillow.Dither.NONE) for p in pictures]
    step = int(1000 * SECONDS_PER_STEP)
    with whole_file(path) as draft:
        pictures[0].save(
            draft,
            format="gif",
            save_all=True,
            append_images=pictures[1:],
            duration=[step] * (len(pictures) - 1) + [6 * step],
            loop=0,
        )


def save_mp4(path: str | Path, packing: Packing, *, size: int = 480) -> None:
    """Write an episode as an MP4 (H.264); the last frame stays longer."""
    check("imageio_ffmpeg", "MP4 files")
    imageio = require("imageio.v2", "MP4 files")
    whole = size // 16 * 16 or 16  # the codec needs multiples of 16 pixels
    pictures = _frames(packing, whole)
    with whole_file(path) as draft:
        imageio.mimwrite(
            draft, [*pictures, *pictures[-1:] * 5], format="mp4", fps=1 / SECONDS_PER_STEP
        )
