"""The map of two models, proposed and proven: what `parity map` and `parity.map_models` give."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parity.checks.models.mapping import ModelMap, map_of, propose, with_rules
from parity.checks.models.opening import ModelSource, open_subjects
from parity.checks.models.ordered import likely_maps
from parity.checks.models.proof import MapProof, prove
from parity.checks.models.subjects import Subjects
from parity.checks.models.text import map_text
from parity.checks.models.whole_leaves import leaf_maps, outputs_agree
from parity.contract import ModelProbe
from parity.convert import open_any, read_torch_state
from parity.errors import CheckpointError, SpecError
from parity.mapping import ConversionRules, LeafRule, read_rules, row_of
from parity.results import Verdict

__all__ = ["MapBrokenError", "MappedModels", "assert_same_model", "map_models", "map_opened", "opened_models"]

SECONDS = 30.0
"""Of the processor, for maps of whole leaves."""


@dataclass(frozen=True)
class MappedModels:
    """What was found of two models: the map, and its proof."""

    models: tuple[str, str]
    found: ModelMap | None
    """None where rules were given."""
    rules: tuple[LeafRule, ...]
    proof: MapProof | None
    """None where nothing could be proven: a leaf has no counterpart, or no row is sure."""
    names: tuple[str, ...]
    """Of the first model, those of tied parameters too."""
    seconds: float

    @property
    def verdict(self) -> Verdict:
        """Return `holds` where every row is sure and the proof holds; what is unsure is inconclusive at best."""
        if self.found is not None and self.found.alone:
            # of as many elements each may be cut in a way that was not found: that a leaf is over says nothing then
            return "inconclusive" if self.found.equal_sizes else "broken"
        if self.proof is None:
            return "inconclusive"
        if self.found is not None and self.found.unsure:
            # where both compute the same with equal leaves of one extent, an output may part by a guessed row alone
            guessed = self.found.agree and any(one.what.startswith("output") for one in self.proof.parted)
            guessed = guessed and not (self.found.matched is not None and self.found.matched.one_sided)
            if self.proof.verdict == "holds" or guessed:
                return "inconclusive"
        return self.proof.verdict

    @property
    def rules_text(self) -> str:
        """Return the map as RULES.toml.

        Raises:
            CheckpointError: No row is sure, or the rules were given.
        """
        if self.found is None:
            raise CheckpointError("the rules were given, so there is nothing to write")
        return map_text(self.found, self.proof, self.names, " to ".join(self.models))

    def text(self, most: int = 25) -> str:
        """Return the verdict, the reasons, and the rows that are not sure, in at most so many lines."""
        return "\n".join(_lines(self)[:most])

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        rows = [
            {"first": row.first, "second": row.second, "sure": row.sure, "why": row.why,
             "rule": None if row.rule is None else row_of(row.rule)}
            for row in (self.found.rows if self.found else ())
        ]  # fmt: skip
        return {
            "models": self.models,
            "verdict": self.verdict,
            "rows": rows,
            "without_counterpart": [list(one) for one in (self.found.alone if self.found else ())],
            "rules": [row_of(rule) for rule in self.rules],
            "proof": None if self.proof is None else _proof_json(self.proof),
            "notes": self.found.notes if self.found else (),
            "seconds": self.seconds,
        }


def _proof_json(proof: MapProof) -> dict[str, Any]:
    made = dataclasses.asdict(proof)
    made["islands"] = [{"model": name, **dataclasses.asdict(island)} for name, island in proof.islands]
    return made


class MapBrokenError(AssertionError):
    """Two models that are not the same under a map, or of which that cannot be shown.

    Attributes:
        mapped: The map and its proof.
    """

    def __init__(self, mapped: MappedModels) -> None:
        self.mapped = mapped
        super().__init__(mapped.text())


MapBrokenError.__module__ = "parity"


def map_models(
    *, torch: Any = None, jax: Any = None, inputs: object = None, rules: Path | Sequence[LeafRule] | None = None,
    torch_args: Any = (), jax_args: Any = (), checkpoint: Path | None = None,
) -> MappedModels:  # fmt: skip
    """Return which leaf of one model is which of the other, and whether both are the same under that map.

    Args:
        torch: A module of PyTorch, a class or a function that makes one; or two of them, as a list.
        jax: The same of JAX: NNX, linen, a pytree that can be called, or a pair of parameters and a function. Of both
            arguments together there are two models.
        inputs: Texts such as `i[2,16]<65`, arrays, or a function that gives them (`parity.checks.models.inputs`).
        rules: RULES.toml or rules; these are proven, and nothing is proposed.
        torch_args: What the model of PyTorch is built with: a tuple, a mapping of names, or one of them for each.
        jax_args: The same of JAX.
        checkpoint: A checkpoint of the first model, of PyTorch: its names and shapes are compared with the model's.

    Raises:
        SpecError: There are not two models, one cannot be built or called, or inputs must be given.
        CheckpointError: The checkpoint is not of the first model, or the rules cannot be read.

    Example:
        >>> import numpy as np
        >>> def model(name):
        ...     def make():
        ...         import jax.numpy as jnp
        ...         return {name: jnp.ones((3, 2))}, lambda params, x: jnp.tanh(x @ params[name])
        ...     return make
        >>> found = map_models(jax=[model("kernel"), model("w")], inputs="f[4,3]")
        >>> found.verdict, found.rules[0].source, found.rules[0].target
        ('holds', ('kernel',), ('w',))
    """
    first, second = opened_models({"torch": (torch, torch_args), "jax": (jax, jax_args)})
    return map_opened(open_subjects(first, second, inputs), rules, checkpoint)


def opened_models(given: dict[str, tuple[Any, Any]]) -> tuple[ModelSource, ModelSource]:
    """Return two models from what a caller gave for each framework.

    Raises:
        SpecError: There are not two.
    """
    found = []
    for framework, (made, args) in given.items():
        several = made if isinstance(made, list) else [] if made is None else [made]
        each = args if isinstance(args, list) else [args] * len(several)
        for one, arguments in zip(several, each, strict=True):
            named = arguments if isinstance(arguments, dict) else {}
            placed = () if isinstance(arguments, dict) else tuple(arguments)
            found.append(
                ModelSource(f"--{framework}", getattr(one, "__name__", type(one).__name__), one, placed, named)
            )
    if len(found) == 2 and found[0].name == found[1].name:
        words = [one.framework for one in found]
        words = words if words[0] != words[1] else ["first", "second"]
        found = [replace(one, name=f"{one.name} ({word})") for one, word in zip(found, words, strict=True)]
    if len(found) != 2:
        raise SpecError("models", f"expected two models, of torch and jax together, got {len(found)}")
    return found[0], found[1]


def map_opened(subjects: Subjects, rules: Path | Sequence[LeafRule] | None, checkpoint: Path | None) -> MappedModels:
    """Return the map of two models that are open, and its proof; see `map_models`."""
    began = time.perf_counter()
    first, second = subjects.first, subjects.second
    if checkpoint is not None:
        require_names(checkpoint, first)
    names = tuple(name for leaf in first.leaves for name in (leaf, *first.ties.get(leaf, ())))
    if rules is not None:
        given = read_rules(rules).rules if isinstance(rules, Path) else ConversionRules(rules).rules
        subjects.require_repeatable()
        proof: MapProof | None = prove(subjects, given)
        return MappedModels((first.name, second.name), None, tuple(given), proof, names, time.perf_counter() - began)
    found = propose(subjects)
    proof = _proof_of(subjects, found)
    if proof is None and not found.agree and found.matched and (coarser := found.matched.coarser) is not None:
        # by neither plan of cuts both agree, and of small pieces no rule says which leaf is which
        found = map_of(subjects, coarser)
        proof = _proof_of(subjects, found)
    if found.unsure and found.agree and found.matched and (proof is None or proof.verdict == "broken"):
        # both compute the same where leaves of one extent are equal: another map may be the one
        for rules in likely_maps(subjects, found.matched):
            if (tried := prove(subjects, rules)).verdict != "broken":
                found, proof = with_rules(found, rules), tried
                break
        else:
            found, proof = _of_whole_leaves(subjects, found, proof)
    return MappedModels(
        (first.name, second.name), found, tuple(found.rules), proof, names, time.perf_counter() - began
    )


def _proof_of(subjects: Subjects, found: ModelMap) -> MapProof | None:
    """Return the proof of all likely rows; None where one has no rule."""
    likely = [row.rule for row in found.rows if row.rule is not None]
    return prove(subjects, likely) if likely and not found.alone and len(likely) == len(found.rows) else None


def _of_whole_leaves(
    subjects: Subjects, found: ModelMap, proof: MapProof | None
) -> tuple[ModelMap, MapProof | None]:  # fmt: skip
    """Return the map of the two by whole leaves, where one holds; that of larger pieces, where none does.

    Models that part at equal values of their leaves may agree at equal values of small pieces of them.
    """
    matched = found.matched
    maps = leaf_maps(subjects, matched) if matched is not None and matched.coarser is not None else None
    if matched is None or matched.coarser is None or maps is None:
        return found, proof
    end = time.process_time() + SECONDS
    for rules in maps:
        if outputs_agree(subjects, rules) and (tried := prove(subjects, rules)).verdict != "broken":
            return with_rules(found, rules), tried
        if time.process_time() > end:
            return found, proof
    coarser = map_of(subjects, matched.coarser)
    return coarser, _proof_of(subjects, coarser)


def require_names(path: Path, model: ModelProbe) -> None:
    """Refuse a checkpoint that is not of a model.

    Raises:
        CheckpointError: It cannot be read, lacks a name of the model, has one more, or another shape.
    """
    if model.framework != "torch":
        raise CheckpointError(f"{path}: a checkpoint is compared with a model of PyTorch, and {model.name} is of JAX")
    held = read_torch_state(open_any(path).tree, alone=True).model
    wanted = {name: value.shape for leaf, value in model.leaves.items() for name in (leaf, *model.ties.get(leaf, ()))}
    lacking = [name for name in model.leaves if not {name, *model.ties.get(name, ())} & set(held)]
    more = [name for name in held if name not in wanted and name not in model.fixed]
    other = [name for name, shape in wanted.items() if name in held and tuple(held[name].shape) != shape]
    if lacking or more or other:
        parts = [
            f"{word} {', '.join(found[:3])}{f' and {len(found) - 3} more' if len(found) > 3 else ''}"
            for word, found in (("lacks", lacking), ("has also", more), ("has another shape for", other))
            if found
        ]
        raise CheckpointError(f"{path} is not of {model.name}: it {'; it '.join(parts)}")


def assert_same_model(**settings: Any) -> MappedModels:
    """Assert that two models are the same under a map: complete, one to one, reversible, and equal in float64.

    Args:
        settings: Arguments of `map_models`.

    Returns:
        The map and its proof, which holds.

    Raises:
        MapBrokenError: The verdict is `broken` or `inconclusive`; the message has at most 25 lines.
        SpecError: As of `map_models`.
    """
    mapped = map_models(**settings)
    if mapped.verdict != "holds":
        raise MapBrokenError(mapped)
    return mapped


_WORDS = {"holds": "the two models are the same", "broken": "the two models are not the same"}


def _lines(mapped: MappedModels) -> list[str]:
    proof, found = mapped.proof, mapped.found
    rows = f"{len(found.rules)} of {len(found.rows)} rows sure" if found else f"{len(mapped.rules)} rules"
    lines = [f"{_WORDS.get(mapped.verdict, mapped.verdict)}: {mapped.models[0]} and {mapped.models[1]}, {rows}"]
    for row in found.unsure if found else ():
        lines.append(f"unsure: {' + '.join(row.first)} and {' + '.join(row.second)}: {row.why}")
    lines += [f"without a counterpart: {what}: {why}" for what, why in (found.alone if found else ())]
    if proof is None:
        lines.append("not proven: not every leaf has a row")
        if found is not None and found.alone and found.equal_sizes:
            lines.append("both have as many elements, and no way to cut them into the same pieces was found")
        if found is not None and not found.agree:
            lines.append("the two do not compute the same where all leaves of one shape are equal")
        return lines + [f"note: {note}" for note in (found.notes if found else ())]
    lines += [f"map: {problem}" for problem in proof.problems]
    for one in proof.parted[:6]:
        at = ", ".join(map(str, one.index))
        lines.append(
            f"parts: {one.what}: {one.first!r} and {one.second!r} at [{at}], {one.gap:.1e} of the largest element "
            f"where {one.limit:.1e} passes"
        )
    if len(proof.parted) > 6:
        lines.append(f"and {len(proof.parted) - 6} more part; parity where names the first module that does")
    if proof.outputs is not None and proof.gradients is not None and not proof.parted:
        lines.append(
            f"float64: outputs differ by {proof.outputs:.1e} at most, gradients of {proof.leaves} leaves by "
            f"{proof.gradients:.1e}"
        )
    for name, island in proof.islands:
        lifted = "computed in float64 here" if island.lifted else "could not be lifted"
        lines.append(f"float32: {name} leaves float64 at {island.where} ({island.what}); {lifted}")
    lines += [
        f"float32: it moves the outputs of {name} by {size:.1e}" for name, size in (proof.effects or {}).items()
    ]
    if proof.unreached:
        shown = ", ".join(proof.unreached[:4]) + (" and more" if len(proof.unreached) > 4 else "")
        lines.append(f"note: no gradient reaches {shown}, in either model")
    return lines + [f"note: {note}" for note in (*proof.notes, *(found.notes if found else ()))]
