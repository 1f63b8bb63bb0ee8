"""Trees of tensors in every type that PyTorch saves, and their bits."""

from typing import Any

import numpy as np
import torch

from parity.formats import Array

DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
)


def tensor(dtype: torch.dtype, shape: tuple[int, ...] = (3, 5)) -> torch.Tensor:
    """Return a tensor of odd bits."""
    count = int(np.prod(shape)) * torch.empty(0, dtype=dtype).element_size()
    raw = np.random.default_rng(count).integers(0, 2 if dtype == torch.bool else 120, count, np.uint8)
    return torch.from_numpy(raw).view(dtype).reshape(shape)


def bits(value: Any) -> bytes:
    """Return the bytes of a tensor or an array, in C order."""
    if isinstance(value, Array):
        return b"".join(block.tobytes() for block in value.blocks(16))
    if isinstance(value, torch.Tensor):
        return bytes(value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return np.ascontiguousarray(value).tobytes()


def every_type() -> dict[str, Any]:
    """Return tensors of every type, odd shapes and strides, shared storages."""
    base = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
    return {
        **{str(dtype).removeprefix("torch."): tensor(dtype) for dtype in DTYPES},
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "transposed": base.permute(2, 0, 1),
        "strided": base[:, ::2, 1:],
        "expanded": torch.ones(1, 3).expand(4, 3),
        "tied": base,
        "tied_again": base,
        "offset": base[1],
        "parameter": torch.nn.Parameter(torch.full((2, 2), 0.5)),
    }
