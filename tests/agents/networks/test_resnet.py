"""The residual encoder on images of one pixel, where a stride moves nothing."""

import os
import sys
import textwrap

import pytest
import torch
from tests.commands import run_program

from agents.networks.encoders.resnet import Convolution


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 1), (1, 2), (5, 1)])
@pytest.mark.parametrize("size", [1, 3, 7])
def test_a_stride_along_one_pixel_moves_nothing(rows: int, columns: int, size: int) -> None:
    strided, images = Convolution(3, 4, size, 2), torch.rand(2, 3, rows, columns)
    plain = torch.nn.Conv2d(3, 4, size, 2, padding=size // 2, bias=False)
    plain.load_state_dict(strided.state_dict())
    assert strided(images).shape == plain(images).shape
    torch.testing.assert_close(strided(images), plain(images))


GRADIENT = """
    import torch
    from agents.networks.encoders.resnet import Convolution
    torch.manual_seed(0)
    layer, images = Convolution(8, 16, 3, 2), torch.rand(4, 8, 1, 1)
    found = []
    for enabled in (True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            out = layer(images).float().sum()
        found.append(torch.autograd.grad(out, layer.weight)[0])
    torch.testing.assert_close(*found, rtol=0.05, atol=0.05)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the allocator of glibc fills new memory")
def test_the_bfloat16_gradient_reads_no_foreign_memory() -> None:
    filled = {**os.environ, "MALLOC_PERTURB_": "165"}
    run_program(textwrap.dedent(GRADIENT), env=filled)
