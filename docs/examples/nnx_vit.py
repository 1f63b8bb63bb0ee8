"""A vision transformer in Flax NNX: channels last, projections with an axis of heads, JAX's own attention."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx


class Attention(nnx.Module):
    """Attention of all patches to all, by projections that have an axis of heads."""

    def __init__(self, width: int, heads: int, fused: bool, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        general = partial(nnx.LinearGeneral, param_dtype=dtype, rngs=rngs)
        size = width // heads
        if fused:
            self.qkv = general(width, (3, heads, size))
        else:
            self.q, self.k, self.v = (general(width, (heads, size)) for _ in range(3))
        self.o = general((heads, size), width, axis=(-2, -1))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return what each patch gets, [batch, patches, width]."""
        q, k, v = jnp.moveaxis(self.qkv(x), 2, 0) if hasattr(self, "qkv") else (self.q(x), self.k(x), self.v(x))
        return self.o(jax.nn.dot_product_attention(q, k, v))


class Block(nnx.Module):
    """Attention and two linear layers, each behind a norm and beside a residual."""

    def __init__(self, width: int, hidden: int, heads: int, fused: bool, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        norm = partial(nnx.LayerNorm, width, epsilon=1e-12, param_dtype=dtype, rngs=rngs)
        self.norm1, self.norm2 = norm(), norm()
        self.attention = Attention(width, heads, fused, dtype, rngs)
        self.mlp = nnx.List(
            [nnx.Linear(n, m, param_dtype=dtype, rngs=rngs) for n, m in ((width, hidden), (hidden, width))]
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return the patches after this layer, [batch, patches, width]."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp[1](jax.nn.gelu(self.mlp[0](self.norm2(x)), approximate=False))


class Vit(nnx.Module):
    """ViT for classes of images.

    Args:
        image: Pixels of a side.
        patch: Pixels of a patch's side.
        channels: Of an image.
        width: Of each patch.
        hidden: Of the linear layers.
        layers: How many.
        heads: Of each attention.
        classes: Logits.
        fused: Whether query, key and value are one projection.
        stacked: Whether the leaves of all layers lie in one array each.
        dtype: Of the parameters.
        rngs: Of the initial values.
    """

    def __init__(
        self, image: int, patch: int, channels: int, width: int, hidden: int, layers: int, heads: int, classes: int,
        *, fused: bool = False, stacked: bool = False, dtype: jnp.dtype = jnp.float32, rngs: nnx.Rngs,
    ) -> None:  # fmt: skip
        def block(rngs: nnx.Rngs) -> Block:
            return Block(width, hidden, heads, fused, dtype, rngs)

        window = (patch, patch)
        self.cut = nnx.Conv(channels, width, window, strides=window, padding="VALID", param_dtype=dtype, rngs=rngs)
        self.first = nnx.Param(0.02 * jax.random.normal(rngs.params(), (width,), dtype))
        places = ((image // patch) ** 2 + 1, width)
        self.places = nnx.Param(0.02 * jax.random.normal(rngs.params(), places, dtype))
        self.stacked = stacked
        if stacked:
            self.blocks = nnx.split_rngs(splits=layers)(nnx.vmap(block))(rngs)
        else:
            self.blocks = nnx.List([block(rngs) for _ in range(layers)])
        self.norm = nnx.LayerNorm(width, epsilon=1e-12, param_dtype=dtype, rngs=rngs)
        self.head = nnx.Linear(width, classes, param_dtype=dtype, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Return logits, [batch, classes], of images, [batch, height, width, channels]."""
        patches = self.cut(images).reshape(images.shape[0], -1, self.first.shape[-1])
        first = jnp.broadcast_to(self.first[...], (images.shape[0], 1, self.first.shape[-1]))
        x = jnp.concatenate([first, patches], axis=1) + self.places[...]
        if self.stacked:
            x = nnx.scan(lambda x, one: one(x), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(x, self.blocks)
        else:
            for one in self.blocks:
                x = one(x)
        return self.head(self.norm(x)[:, 0])


def loss(model: Vit, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean cross entropy of classes, int [batch], for images, [batch, channels, height, width]."""
    scores = jax.nn.log_softmax(model(jnp.moveaxis(images, 1, -1)), axis=-1)
    return -jnp.take_along_axis(scores, labels[:, None], axis=-1).mean()
