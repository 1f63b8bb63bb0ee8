"""Room for a copy on the host: page-locked for a tensor on a GPU, where the system allows that."""

from types import SimpleNamespace

import pytest
import torch

from torch_side.formats.host import room


@pytest.mark.parametrize("far", [False, True])
def test_room_has_the_shape_and_type_of_the_tensor_in_c_order(far: bool) -> None:
    live = torch.zeros(4, 3, dtype=torch.bfloat16).t()
    made = room(SimpleNamespace(is_cuda=far, shape=live.shape, dtype=live.dtype))
    assert (made.shape, made.dtype, made.device.type) == (live.shape, live.dtype, "cpu")
    assert made.is_contiguous()


def test_memory_that_cannot_be_locked_is_ordinary_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def empty(*shape: object, pin_memory: bool = False, **given: object) -> torch.Tensor:
        asked.append(pin_memory)
        if pin_memory:
            raise RuntimeError("CUDA error: out of memory")
        return torch.zeros(*shape, **given)

    monkeypatch.setattr("torch_side.formats.host.torch", SimpleNamespace(empty=empty))
    made = room(SimpleNamespace(is_cuda=True, shape=(2,), dtype=torch.float32))
    assert asked == [True, False]
    assert made.tolist() == [0.0, 0.0]
