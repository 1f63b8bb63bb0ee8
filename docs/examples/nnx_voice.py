"""An encoder of voices in Flax NNX: LSTM layers with the two biases that PyTorch has, each a scan over time."""

import jax
import jax.numpy as jnp
from flax import nnx


class Layer(nnx.Module):
    """One LSTM layer. Its two biases do the same, and both are there: one alone would learn at half the speed."""

    def __init__(self, inputs: int, width: int, dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        def draw(*shape: int) -> nnx.Param:
            return nnx.Param(jax.random.uniform(rngs.params(), shape, dtype, -(width**-0.5), width**-0.5))

        self.w_in, self.w_state = draw(inputs, 4 * width), draw(width, 4 * width)
        self.b_in, self.b_state = draw(4 * width), draw(4 * width)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return the hidden states, [batch, time, width], of x, [batch, time, inputs]."""
        given = x @ self.w_in[...] + self.b_in[...] + self.b_state[...]
        nothing = jnp.zeros((x.shape[0], self.w_state.shape[0]), given.dtype)
        w_state = self.w_state[...]

        def step(state: tuple[jax.Array, jax.Array], now: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
            hidden, cell = state
            i, f, g, o = jnp.split(now + hidden @ w_state, 4, axis=-1)
            cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
            hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
            return (hidden, cell), hidden

        _, made = jax.lax.scan(step, (nothing, nothing), jnp.moveaxis(given, 1, 0))
        return jnp.moveaxis(made, 0, 1)


class Voice(nnx.Module):
    """Embeddings of utterances, and how alike two of them count.

    Args:
        channels: Of a spectrogram.
        width: Of the layers and of an embedding.
        layers: How many.
        dtype: Of the parameters.
        rngs: Of the initial values.
    """

    def __init__(
        self, channels: int, width: int, layers: int, *, dtype: jnp.dtype = jnp.float32, rngs: nnx.Rngs
    ) -> None:
        self.layers = nnx.List([Layer(channels if at == 0 else width, width, dtype, rngs) for at in range(layers)])
        self.embed = nnx.Linear(width, width, param_dtype=dtype, rngs=rngs)
        self.factor, self.shift = nnx.Param(jnp.full(1, 10.0, dtype)), nnx.Param(jnp.full(1, -5.0, dtype))

    def __call__(self, spectrograms: jax.Array, speakers: int) -> jax.Array:
        """Return the likeness of each utterance and each speaker, [utterances, speakers].

        Args:
            spectrograms: [utterances, time, channels], those of one speaker after the other.
            speakers: How many.
        """
        x = spectrograms
        for layer in self.layers:
            x = layer(x)
        made = jax.nn.relu(self.embed(x[:, -1]))
        made = made / jnp.linalg.norm(made, axis=1, keepdims=True)
        centres = made.reshape(speakers, -1, made.shape[-1]).mean(axis=1)
        centres = centres / jnp.linalg.norm(centres, axis=1, keepdims=True)
        return made @ centres.T * self.factor[...] + self.shift[...]


def loss(model: Voice, spectrograms: jax.Array, speakers: int) -> jax.Array:
    """Return the mean cross entropy of who speaks."""
    scores = jax.nn.log_softmax(model(spectrograms, speakers), axis=-1)
    who = jnp.repeat(jnp.arange(speakers), spectrograms.shape[0] // speakers)
    return -jnp.take_along_axis(scores, who[:, None], axis=-1).mean()
