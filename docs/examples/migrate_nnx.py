"""The port of `migrate_torch.py` to NNX; its norm and its GELU are as Flax has them by default."""

import jax
from flax import nnx


class Model(nnx.Module):
    """The same model, in the words of Flax."""

    def __init__(self, epsilon: float = 1e-6, approximate: bool = True, *, rngs: nnx.Rngs) -> None:
        self.tokens, self.scale = nnx.Embed(50, 16, rngs=rngs), nnx.LayerNorm(16, epsilon=epsilon, rngs=rngs)
        self.wide, self.narrow = nnx.Linear(16, 32, rngs=rngs), nnx.Linear(32, 16, rngs=rngs)
        self.approximate = approximate

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Return logits, [batch, time, words], of tokens, int [batch, time]."""
        x = self.tokens(tokens)
        h = jax.nn.gelu(self.wide(self.scale(x)), approximate=self.approximate)
        return self.tokens.attend(x + self.narrow(h))
