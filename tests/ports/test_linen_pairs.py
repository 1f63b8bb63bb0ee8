"""A module of linen given with its variables, which is a model as the module alone is."""

import jax
import numpy as np
import pytest
from flax import linen

from jax_side.probes.trees import tree_of
from parity.errors import SpecError


class Net(linen.Module):
    @linen.compact
    def __call__(self, x):  # type: ignore[no-untyped-def]
        return linen.Dense(2)(linen.BatchNorm(use_running_average=True)(x))


INPUTS = (np.ones((3, 4)),)


def built():  # type: ignore[no-untyped-def]
    net = Net()
    return net, net.init(jax.random.key(7), np.ones((1, 4)))


def tree(made):  # type: ignore[no-untyped-def]
    return tree_of("--jax", "made", made, (), {}, INPUTS)


@pytest.mark.parametrize("made", [built, built()])
def test_a_module_of_linen_with_its_variables_keeps_them(made):
    found = tree(made)
    assert np.array_equal(found.arrays["Dense_0.kernel"], built()[1]["params"]["Dense_0"]["kernel"])
    assert not np.array_equal(found.arrays["Dense_0.kernel"], tree(Net()).arrays["Dense_0.kernel"])
    assert found.collections == {"BatchNorm_0.mean": "batch_stats", "BatchNorm_0.var": "batch_stats"}
    module, variables = found.assemble(found.arrays)
    assert module == Net()
    assert np.array_equal(module.apply(variables, *INPUTS), found.call(found.arrays, INPUTS))


def test_a_module_with_something_that_is_no_tree_of_variables_is_refused():
    with pytest.raises(SpecError):
        tree((Net(), None, None))
    with pytest.raises(SpecError, match="gave tuple"):
        tree((Net(), 3.0))
