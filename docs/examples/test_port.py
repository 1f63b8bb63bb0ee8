"""The checks of `port_optax.py` against `port_torch.py`, as tests."""

import port_optax
import port_torch

import parity


def test_the_port_trains_alike() -> None:
    parity.assert_twins(port_torch.train, port_optax.train, steps=40)


def test_a_run_is_handed_over() -> None:
    parity.assert_handover(port_torch.train, port_optax.train, convert=port_optax.convert, steps=40, stop_at=25)
