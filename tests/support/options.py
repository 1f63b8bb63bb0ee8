"""What a spec of the twins may say: every optimizer with its arguments, groups, and every schedule."""

CASES: dict[str, tuple[str, list[str]]] = {
    "adam": ("mlp-digits", ["optimizer.kind=adam", "optimizer.amsgrad=true", "optimizer.decay=matrices"]),
    "adamw": ("mlp-digits", ["optimizer.maximize=true"]),
    "sgd": ("mlp-digits", ["optimizer.kind=sgd", "optimizer.dampening=0.3"]),
    "nadam": ("mlp-digits", ["optimizer.kind=nadam", "optimizer.decoupled_weight_decay=true"]),
    "radam": ("mlp-digits", ["optimizer.kind=radam"]),
    "adamax": ("mlp-digits", ["optimizer.kind=adamax"]),
    "rmsprop": (
        "cnn-digits",
        ["optimizer.kind=rmsprop", "optimizer.centered=true", "optimizer.momentum=0.9", "optimizer.lr=0.001"],
    ),
    "adagrad": ("mlp-digits", ["optimizer.kind=adagrad", "optimizer.initial_accumulator_value=0.1"]),
    "adadelta": ("mlp-digits", ["optimizer.kind=adadelta", "optimizer.lr=1.0"]),
    "rprop": ("mlp-digits", ["optimizer.kind=rprop", "optimizer.step_sizes=[1e-6, 0.02]"]),
    "asgd": ("mlp-digits", ["optimizer.kind=asgd", "optimizer.lr=0.05", "optimizer.t0=4"]),
    "adafactor": ("mlp-digits", ["optimizer.kind=adafactor", "optimizer.decay=matrices"]),
    "muon": ("mlp-digits", ["optimizer.kind=muon", "optimizer.lr=0.02"]),
    "lion": ("mlp-digits", ["optimizer.kind=lion"]),
    "nadam in groups": (
        "mlp-digits",
        [
            "optimizer.kind=nadam",
            "optimizer.groups=[{names=['*.bias'], weight_decay=0.0}, {names=['layers.0.*'], ndim=[2], lr=0.01}]",
        ],
    ),
    "adamw in groups": ("mlp-digits", ["optimizer.groups=[{ndim=[1], lr=0.01, weight_decay=0.0}, {}]"]),
    "adafactor of convolutions": ("cnn-digits", ["optimizer.kind=adafactor"]),
    "muon of a gpt": ("gpt-text", ["optimizer.kind=muon", "optimizer.adjust_lr_fn=match_rms_adamw"]),
}
"""Case to preset and overrides; the first word is the optimizer."""

FACTORS = "[[1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4]]"
WARM = '{kind="linear", total_iters=3}'
RULE_TEXTS = {
    "constant": 'kind="constant", total_iters=4',
    "linear": 'kind="linear", start_factor=0.1, total_iters=7',
    "polynomial": 'kind="polynomial", total_iters=9, power=2.0',
    "exponential": 'kind="exponential", gamma=0.9',
    "step": 'kind="step", step_size=4, gamma=0.5',
    "multi_step": 'kind="multi_step", milestones=[2, 7]',
    "cosine": 'kind="cosine", T_max=7',
    "cosine_restarts": 'kind="cosine_restarts", T_0=3, T_mult=2',
    "cyclic": 'kind="cyclic", base_lr=0.01, max_lr=0.1, step_size_up=4',
    "one_cycle": 'kind="one_cycle", max_lr=0.1, total_steps=14',
    "lambda": f'kind="lambda", tables={FACTORS}',
    "multiplicative": f'kind="multiplicative", tables={FACTORS}',
    "plateau": 'kind="plateau", patience=0, factor=0.5, threshold=0.5',
    "sequential": f'kind="sequential", milestones=[3], rules=[{WARM}, {{kind="cosine", T_max=9}}]',
    "chained": f'kind="chained", rules=[{WARM}, {{kind="exponential", gamma=0.9}}]',
    "beside": f'kind="beside", rules=[{WARM}, {{kind="plateau", patience=0, threshold=0.5}}]',
}
"""Kind to a rule, as TOML."""
