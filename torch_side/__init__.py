"""The PyTorch twin: eager or compiled, autocast, GradScaler, torch.optim."""

from torch_side.checkpoint import Checkpoints
from torch_side.inference import export_params, load_model
from torch_side.placement import topology
from torch_side.train import TorchTrainer, build

__all__ = ["Checkpoints", "TorchTrainer", "build", "export_params", "load_model", "topology"]
