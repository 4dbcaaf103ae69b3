"""The residual encoder on images of one pixel, where a stride moves nothing."""

import ctypes
import platform

import pytest
import torch

from agents.networks.encoders.resnet import Convolution


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 1), (1, 2), (5, 1)])
@pytest.mark.parametrize("size", [1, 3, 7])
def test_a_stride_along_one_pixel_moves_nothing(rows: int, columns: int, size: int) -> None:
    strided, images = Convolution(3, 4, size, 2), torch.rand(2, 3, rows, columns)
    plain = torch.nn.Conv2d(3, 4, size, 2, padding=size // 2, bias=False)
    plain.load_state_dict(strided.state_dict())
    assert strided(images).shape == plain(images).shape
    torch.testing.assert_close(strided(images), plain(images))


PERTURB = -6
"""The option M_PERTURB of ``mallopt``: fill memory that is allocated or freed."""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="its allocator fills new memory")
def test_the_bfloat16_gradient_reads_no_foreign_memory() -> None:
    layer, images, found = Convolution(8, 16, 3, 2), torch.rand(4, 8, 1, 1), []
    lib = ctypes.CDLL(None)
    assert lib.mallopt(PERTURB, 165)
    try:
        for enabled in (True, False):
            with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                out = layer(images).float().sum()
            found.append(torch.autograd.grad(out, layer.weight)[0])
    finally:
        lib.mallopt(PERTURB, 0)
    torch.testing.assert_close(*found, rtol=0.05, atol=0.05)
