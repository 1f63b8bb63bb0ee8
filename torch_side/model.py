"""The models, as PyTorch modules; canonical names are these modules' state_dict keys.

Where autocast's lists differ between devices, the modules cast to the exact dtype themselves. Attention is
written out: fused kernels on GPUs add in no fixed order, and a resume must be bitwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce

from parity.spec import CnnSpec, DropoutSpec, GptSpec, LinearSpec, MlpSpec, RunSpec
from torch_side.dropout import Dropout
from torch_side.numerics import Dtypes, dtypes

__all__ = [
    "BatchNorm",
    "Cnn",
    "Gpt",
    "Linear",
    "Mlp",
    "build_model",
    "cross_entropy",
    "loss_function",
    "mean_squared_error",
]

NORM_EPS = 1e-5
BATCH_NORM_MOMENTUM = 0.1
"""Weight of the new statistics, PyTorch's meaning of the word."""


def build_model(spec: RunSpec) -> nn.Module:
    """Return the model of a spec; its values are placeholders until a state is put in."""
    types = dtypes(spec.precision)
    model = MODELS[spec.model.kind](spec.model, spec.dropout, types)
    return model.to(types.params)


def cross_entropy(logits: Tensor, targets: Tensor, types: Dtypes) -> Tensor:
    """Return the mean over all targets of -log softmax(logits)[target], computed in the exact dtype.

    Args:
        logits: [..., classes], any float dtype.
        targets: int64 [...].
    """
    return F.cross_entropy(logits.to(types.exact).flatten(0, -2), targets.flatten())


def mean_squared_error(outputs: Tensor, targets: Tensor, types: Dtypes) -> Tensor:
    """Return the mean over all elements of (output - target)^2, computed in the exact dtype.

    Args:
        outputs: [..., outputs], any float dtype.
        targets: Of the same shape, in the parameters' dtype.
    """
    return F.mse_loss(outputs.to(types.exact), targets.to(types.exact))


def loss_function(spec: RunSpec) -> Callable[[Tensor, Tensor, Dtypes], Tensor]:
    """Return the loss of a spec: of what a model returns, targets and dtypes."""
    return mean_squared_error if spec.data.source == "regression" else cross_entropy


class Linear(nn.Module):
    """One affine map."""

    def __init__(self, model: LinearSpec, dropout: DropoutSpec, types: Dtypes) -> None:
        super().__init__()
        del dropout, types
        self.head = nn.Linear(model.inputs, model.outputs)

    def forward(self, x: Tensor, key: Tensor | None = None, *, train: bool = False) -> Tensor:
        """Map [batch, inputs] to [batch, outputs]; training changes nothing."""
        del key, train
        return self.head(x)


class Mlp(nn.Module):
    """Linear, ReLU, dropout for every hidden layer, then a linear head."""

    def __init__(self, model: MlpSpec, dropout: DropoutSpec, types: Dtypes) -> None:
        super().__init__()
        del types
        widths = (model.inputs, *model.hidden, model.classes)
        pairs = list(itertools.pairwise(widths))
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in pairs])
        self.dropouts = nn.ModuleList([Dropout(dropout, i) for i in range(len(model.hidden))])

    def forward(self, x: Tensor, key: Tensor | None = None, *, train: bool = False) -> Tensor:
        """Map images [batch, inputs] to logits [batch, classes]; without `train` nothing is dropped."""
        *hidden, head = self.layers  # a slice would be a new ModuleList
        for layer, drop in zip(hidden, self.dropouts, strict=True):
            x = drop(F.relu(layer(x)), key, train=train)
        return head(x)


class BatchNorm(nn.BatchNorm2d):
    """PyTorch's own batch normalisation, whose mode is an argument of each call, as on the JAX side."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=NORM_EPS, momentum=BATCH_NORM_MOMENTUM)
        self.group: dist.ProcessGroup | None = None
        """The processes whose samples are normalised together; None where one has all of them."""

    def forward(self, x: Tensor, *, train: bool) -> Tensor:
        """Normalise x [batch, channels, height, width], by its own statistics when training."""
        if train:
            self.num_batches_tracked.add_(1)
            if self.group is not None:
                return self._normalise_together(x, self.group)
        statistics = self.running_mean, self.running_var, self.weight, self.bias
        return F.batch_norm(x, *statistics, train, BATCH_NORM_MOMENTUM, NORM_EPS)

    def _normalise_together(self, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        """Normalise by the statistics of all processes' samples; `nn.SyncBatchNorm` needs a GPU (torch 2.13)."""
        axes, count = (0, 2, 3), x.numel() // x.shape[1] * dist.get_world_size(group)
        mean = all_reduce(x.sum(axes), group=group) / count
        centred = x - mean[:, None, None]
        variance = all_reduce((centred * centred).sum(axes), group=group) / count
        with torch.no_grad():
            self.running_mean.lerp_(mean, BATCH_NORM_MOMENTUM)
            self.running_var.lerp_(variance * (count / (count - 1)), BATCH_NORM_MOMENTUM)
        scale = self.weight * torch.rsqrt(variance + NORM_EPS)
        return centred * scale[:, None, None] + self.bias[:, None, None]


class Cnn(nn.Module):
    """Convolution, BatchNorm, ReLU, 2x2 average pooling per stage; dropout and a linear head."""

    def __init__(self, model: CnnSpec, dropout: DropoutSpec, types: Dtypes) -> None:
        super().__init__()
        channels = (1, *model.channels)
        pairs = list(itertools.pairwise(channels))
        self.size, self.exact = model.size, types.exact
        self.convs = nn.ModuleList([nn.Conv2d(a, b, 3, padding=1, bias=False) for a, b in pairs])
        self.norms = nn.ModuleList([BatchNorm(c) for c in model.channels])
        side = model.size // 2 ** len(model.channels)
        self.dropout = Dropout(dropout, 0)
        self.head = nn.Linear(channels[-1] * side * side, model.classes)

    def forward(self, x: Tensor, key: Tensor | None = None, *, train: bool = False) -> Tensor:
        """Map images [batch, size * size] to logits [batch, classes], with statistics and dropout by `train`."""
        x = x.view(-1, 1, self.size, self.size)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.avg_pool2d(F.relu(norm(conv(x).to(self.exact), train=train)), 2)
        return self.head(self.dropout(x.flatten(1), key, train=train))


class Block(nn.Module):
    """One pre-norm decoder block."""

    def __init__(self, model: GptSpec, dropout: DropoutSpec, types: Dtypes, first: int) -> None:
        super().__init__()
        width = model.width
        self.heads, self.exact = model.heads, types.exact
        self.norm1, self.norm2 = nn.LayerNorm(width, NORM_EPS), nn.LayerNorm(width, NORM_EPS)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.drop1, self.drop2 = Dropout(dropout, first), Dropout(dropout, first + 1)
        self.register_buffer(
            "causal", torch.tril(torch.ones(model.context, model.context, dtype=torch.bool)), persistent=False
        )

    def forward(self, x: Tensor, key: Tensor | None, *, train: bool) -> Tensor:
        """Map [batch, context, width] to the same shape."""
        x = x + self.drop1(self.out(self._attend(self.qkv(self.norm1(x)))), key, train=train)
        hidden = F.gelu(self.up(self.norm2(x)), approximate="none")
        return x + self.drop2(self.down(hidden), key, train=train)

    def _attend(self, qkv: Tensor) -> Tensor:
        batch, context, _ = qkv.shape  # [batch, context, 3 * width]
        # Each of the three: [batch, heads, context, width / heads].
        q, k, v = qkv.view(batch, context, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)).to(self.exact) * (q.shape[-1] ** -0.5)
        causal = self.causal[:context, :context]
        weights = torch.where(causal, scores, -torch.inf).softmax(-1).to(v.dtype)
        return (weights @ v).transpose(1, 2).reshape(batch, context, -1)


class Gpt(nn.Module):
    """Decoder over bytes with learned positions; the residual stream stays in the exact dtype."""

    def __init__(self, model: GptSpec, dropout: DropoutSpec, types: Dtypes) -> None:
        super().__init__()
        self.tokens = nn.Embedding(model.vocabulary, model.width)
        self.positions = nn.Embedding(model.context, model.width)
        self.dropout = Dropout(dropout, 0)
        self.blocks = nn.ModuleList([Block(model, dropout, types, 1 + 2 * i) for i in range(model.layers)])
        self.norm = nn.LayerNorm(model.width, NORM_EPS)
        self.head = None if model.tied else nn.Linear(model.width, model.vocabulary, bias=False)

    def forward(self, x: Tensor, key: Tensor | None = None, *, train: bool = False) -> Tensor:
        """Map bytes int64 [batch, context] to logits [batch, context, vocabulary]."""
        positions = self.positions.weight[: x.shape[1]]
        hidden = self.dropout(self.tokens(x) + positions, key, train=train)
        for block in self.blocks:
            hidden = block(hidden, key, train=train)
        hidden = self.norm(hidden)
        if self.head is not None:
            return self.head(hidden)
        return F.linear(hidden, self.tokens.weight)


MODELS: Mapping[str, Callable[..., nn.Module]] = {"linear": Linear, "mlp": Mlp, "cnn": Cnn, "gpt": Gpt}
"""Kind to the class of its models."""
