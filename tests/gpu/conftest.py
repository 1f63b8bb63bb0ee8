"""Where these tests run: on a machine with a GPU that PyTorch and JAX both see; elsewhere they are not collected."""

import torch

collect_ignore_glob = [] if torch.cuda.is_available() else ["test_*.py"]


def pytest_report_header() -> str:
    """Say that a machine without a GPU leaves these tests out."""
    return "tests/gpu: collected" if torch.cuda.is_available() else "tests/gpu: left out, no CUDA device here"
