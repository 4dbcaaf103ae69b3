"""Packed containers as images, figures, GIF, MP4, an HTML page in 3-D, GLB, STL and PDF.

:func:`image` draws the solids with a small software rasteriser, so that pictures need neither a
display nor a GPU. Figures, PDF and GIF need ``pip install packing-env[viz]``, MP4 the extra
``video``.
"""

from packing_env.plan import Packing, load_plan, packing_of
from packing_env.render.exchange import save_glb, save_stl
from packing_env.render.figures import save_grid, save_png, title_of
from packing_env.render.replay import save_gif, save_mp4
from packing_env.render.scene import frame, image
from packing_env.render.sheet import save_pdf
from packing_env.render.viewer import save_html
from packing_env.render.window import Window

__all__ = [
    "Packing",
    "Window",
    "frame",
    "image",
    "load_plan",
    "packing_of",
    "save_gif",
    "save_glb",
    "save_grid",
    "save_html",
    "save_mp4",
    "save_pdf",
    "save_png",
    "save_stl",
    "title_of",
]
