"""The order of suspicion between kinds of evidence: what a difference follows from stands before it.

The names of variables order suspects here and word the advice; whether something was lost is decided elsewhere, but
for losses that a later step would have replaced anyway: a best metric, a count of evaluations without a better one.
Two such runs end equal, though a kill at another step would show the loss. It is told from a value that the loop
derives again before it uses it: there the uninterrupted run keeps its value while the resumed one comes to it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from parity.capture import Leaf, StateSnapshot
from parity.checks.judging.evidence import RANK, Evidence, TwoStates, Uninterrupted, after_resume
from parity.checks.judging.usage import VARIABLE, is_saved
from parity.checks.running import INSIDE

__all__ = [
    "DATA",
    "OUTER",
    "earliest",
    "find_replaced",
    "holders_of",
    "identifiers",
    "in_order",
    "is_read",
    "is_taken",
    "is_variable",
    "restored_last",
    "seeds_of_loaders",
    "with_data",
]


def find_replaced(
    states: Sequence[TwoStates],
    found: Sequence[Sequence[str]],
    uninterrupted: Uninterrupted,
    derived: Sequence[bool],
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the paths of lost numbers that later steps made equal again, with the first state of which they did.

    Args:
        states: What the uninterrupted run and the resumed one hold, mark by mark from the resume on.
        found: Paths that differ in each.
        uninterrupted: What equal runs say.
        derived: Of each state, whether the resumed run read its folder in the step before: then it may have found
            there what it had not loaded.

    Returns:
        Those that were lost, and those of which that cannot be said.
    """
    lost: dict[str, int] = {}
    unsure: dict[str, int] = {}
    feeds = _refilled(states)
    for path in found[0]:
        leaf = states[0].left.leaves.get(path)
        if leaf is None or leaf.role not in ("scalar", "array") or states[0].is_dead(path):
            continue
        if path not in uninterrupted.changing or path in uninterrupted.rounded or uninterrupted.is_history(path):
            continue
        at = next((index for index in range(1, len(states)) if path not in found[index]), None)
        if at is None:
            continue
        before, after = (states[index].left.leaves.get(path) for index in (at - 1, at))
        if before is not None and after is not None and not after.same(before):
            reset = uninterrupted.use.resets((identifiers(path) or [path])[-1], after.digest)
            (unsure if (derived[at] and not reset) or (at == 1 and path.startswith(feeds)) else lost)[path] = at
    return lost, unsure


def _refilled(states: Sequence[TwoStates]) -> tuple[str, ...]:
    """Return what paths begin with below objects that hold a queue which the first step fills again, from nothing.

    So is a feed that makes batches ahead: after a resume its queue is empty, and the first step makes as many as
    there were, the same ones. What the feed keeps about making them comes to be equal with them. A list of records
    that was lost gets new ones, which are others or fewer; a number that stands in a sequence by itself is no batch.
    """
    if len(states) < 2:
        return ()
    left, right = states[0].left.leaves, states[0].right.leaves
    found: set[str] = set()
    for path in left:
        queue = path.removesuffix(".len")
        if queue == path or path not in right or right[path].digest != "0" or left[path].digest == "0":
            continue
        after = [both.leaves.get(path) for both in (states[1].left, states[1].right)]
        again = after[0] is not None and after[0].same(after[1]) and after[0].same(left[path])
        if again and f"{queue}[0].len" in left:
            found.add(f"{queue.rpartition('.')[0]}." if "." in queue else f"{queue}[")
    return tuple(found)


DATA = ("data.batch", "data.position")

_TELLING = ("data", "rng", "gradients", "ema", "model", "optim", "best")
"""Components of a soft difference at the resume that name a cause by themselves."""


def with_data(causes: list[Evidence], later: list[Evidence], uninterrupted: Uninterrupted) -> list[Evidence]:
    """Return the causes where nothing hard was lost: by what the first later difference is of."""
    if later and later[0].component in DATA:
        position = [e for e in causes if e.component == "data.position"]
        if not position:  # what the batch is made with comes before the batch
            read = [e for e in causes if is_read(e, uninterrupted) or _is_held(e, uninterrupted)]
            made = [e for e in read if e.component != "loss"]
            causes = made + [e for e in causes if e not in made]
            position = [*made, later[0]._replace(component="data.position")]
        others = [e for e in causes if e not in position]
        telling = [
            e for e in others if e.component.startswith(("rng", "ema", "model.b", "model.p", "optim", "best"))
        ]  # what the batch is made with
        return telling + position + [e for e in others if e not in telling]
    if later and not any(e.component.startswith(_TELLING) for e in causes):
        known = later[0].component.startswith("schedule.")  # by its class: no consequence of what nothing tells about
        saved = [
            e
            for e in causes
            if ((is_read(e, uninterrupted) or _is_held(e, uninterrupted)) and not known)
            or any(is_saved(word, uninterrupted.use.files) for word in identifiers(e.path))
        ]
        return saved + later[:1] + [e for e in causes if e not in saved]
    return causes


def seeds_of_loaders(lost: list[Evidence], causes: list[Evidence], uninterrupted: Uninterrupted) -> list[Evidence]:
    """Return what of the hard differences is behind all else: a generator that moves seldom.

    Each iterator of a loader draws a seed from it, and mostly nobody reads that.
    """
    idle = [e for e in lost if e.path in uninterrupted.idle and e.path == _SHARED]
    # how many batches an iterator has given does not follow from a generator
    elsewhere = any(e.component == "data.position" and e.path.endswith(".count") for e in causes)
    told = elsewhere or len(idle) < len(lost) or any(is_read(e, uninterrupted) for e in causes)
    # nor does how far an iterator of the trainer's own has come, which a variable holds that a step takes
    told = told or any(e.component == "data.position" and _is_held(e, uninterrupted) for e in causes)
    return idle if told else []


def in_order(
    lost: list[Evidence], causes: list[Evidence], uninterrupted: Uninterrupted, otherwise: Collection[str] = ()
) -> list[Evidence]:
    """Return what differs at the resume, arrays of unknown purpose behind numbers that tell a position.

    A batch that waits in a queue follows from the position of the data, whatever holds it.

    Args:
        lost: What differs and takes part in training by what it is.
        causes: What else differs and may be the cause.
        uninterrupted: What equal runs say.
        otherwise: Paths of tables that a new process fills with other values.
    """
    filled = [e for e in lost + causes if uninterrupted.use.fills((identifiers(e.path) or [e.path])[-1])]
    filled = [e for e in filled if e.path not in otherwise]
    lost = [e for e in lost if e not in filled]
    causes = [e for e in causes if e not in filled] + filled  # a new process fills them again
    unknown = [e for e in lost if e.component == e.path]
    data = [e for e in causes if e.component in DATA] if unknown else []
    known = [e for e in lost if e not in unknown]
    return known + data + unknown + [e for e in causes if e not in data]


def restored_last(
    found: list[Evidence],
    later: list[Evidence],
    saved: StateSnapshot,
    entry: StateSnapshot,
    uninterrupted: Uninterrupted,
) -> list[Evidence]:
    """Return what was not restored before what was, which came to differ in the first step.

    Something that is not seen at a mark may have made that step another one, as a batch does: what the next step
    shows of it comes before what was restored.

    Args:
        found: What differs at the first mark of a resumed run, which a step was made before.
        later: What differs one step later.
        saved: What the uninterrupted run held at the mark before.
        entry: What the resumed run held where its first step began.
        uninterrupted: What equal runs say.
    """
    at_entry = _by_their_names(entry, saved)
    optimizers = {p.partition(".state[")[0] for p in saved.leaves if ".state[" in p}
    not_loaded = {p for p in optimizers if not any(path.startswith(f"{p}.state[") for path in at_entry)}

    def was_restored(e: Evidence) -> tuple[int, bool]:
        # a container is known by how much it holds
        before, now = (at.get(e.path) or at.get(f"{e.path}.len") for at in (saved.leaves, at_entry))
        owner, of_slot, _ = e.path.partition(".state[")
        if of_slot and owner in not_loaded:
            return 0, False
        if before is not None and now is None and e.got == "absent":
            return 0, False  # neither there nor a step later
        if before is None or now is None:
            return 1, False  # not there yet, or seen by another name: nothing is known
        if before.role == "scalar" and not before.same(now) and not is_read(e, uninterrupted):
            return 1, False  # a library's own number, such as the step of its last save: no code of the user takes it
        with_its_slots = e.path.partition(".param_groups[")[0] in not_loaded
        return (2 if before.same(now) else 0), with_its_slots

    ordered = sorted(found, key=was_restored)
    restored = [e for e in ordered if was_restored(e)[0] == 2]
    others = [e for e in ordered if e not in restored]
    if not restored:
        return ordered + later
    # a position that was right and is not after a step was set otherwise by it, and is what it took its samples by
    placed = [e for e in restored if e.component == "data.position"]
    restored = [e for e in restored if e not in placed]
    made = [e for e in others if e.component == "gradients"]  # by that step, of all that it was made with
    others = [e for e in others if e not in made]
    data = [e for e in later if e.component in DATA]
    numbers = [e for e in later if is_variable(e.path) and e.component != "loss" and e not in data]
    numbers = numbers if made else []
    return others + data + numbers + placed + made + restored + [e for e in later if e not in data + numbers]


def _by_their_names(entry: StateSnapshot, saved: StateSnapshot) -> dict[str, Leaf]:
    """Return the leaves at an entry, by the paths of a mark: `self.model`, for `fit().self`."""
    shared = _shared_numbers(entry, saved)
    other = {path: leaf.digest for path, leaf in saved.leaves.items() if leaf.role == "alias" and "()." in path}
    if not other:
        return shared | entry.leaves
    words = "|".join(map(re.escape, sorted(other, key=len, reverse=True)))
    name = re.compile(rf"({words})(?=[.\[\]]|$)")
    return shared | {name.sub(lambda found: other[found[1]], path): leaf for path, leaf in entry.leaves.items()}


def _shared_numbers(entry: StateSnapshot, saved: StateSnapshot) -> dict[str, Leaf]:
    """Return what an inner function that marks reads of the one around it: a plain value has no identity to go by.

    At a mark `clip` is in both, as `clip` and `fit().clip`; where the loop around begins the inner one has no frame.
    """
    names = ((path, path.partition("().")[2], leaf) for path, leaf in entry.leaves.items())
    return {
        short: leaf
        for path, short, leaf in names
        if short and short not in entry.leaves and path in saved.leaves and short in saved.leaves
        and saved.leaves[path].digest == saved.leaves[short].digest
    }  # fmt: skip


_SHARED = "torch.default_generator"
"""The generator from which loaders draw seeds; one of the trainer's own is drawn from on purpose, however seldom."""


def is_read(e: Evidence, uninterrupted: Uninterrupted) -> bool:
    """Return whether code that ran takes a value by its last name for more than a message."""
    inner = OUTER.sub("", e.path).removesuffix(".maxlen")  # a deque takes its limit by itself
    variable = re.fullmatch(r"(\w+)(\[.*\])*", inner, re.DOTALL)
    name = VARIABLE + variable[1] if variable else INSIDE + (identifiers(inner) or [inner])[-1]
    return uninterrupted.use.reads(name)


OUTER = re.compile(r"^(rank\d+:)?(\w+\(\)\.|[\w.]+:)?")
"""A rank, and the function of an outer frame or the module, before a variable."""


def is_taken(e: Evidence, uninterrupted: Uninterrupted) -> bool:
    """Return whether code takes a value for more than a message, and another one than it would have."""
    return not e.is_one_number and is_read(e, uninterrupted)


def earliest(
    states: Sequence[TwoStates], found: Sequence[Sequence[str]], uninterrupted: Uninterrupted
) -> list[Evidence]:
    """Return what differed first of what code takes: what a file or a result shows follows from it, if from anything.

    Args:
        states: What the uninterrupted run and the resumed one hold, mark by mark from the resume on.
        found: Paths that differ in each.
        uninterrupted: What equal runs say.
    """
    for index, (both, differ) in enumerate(zip(states, found, strict=True)):
        here = [p for p in differ if both.leaf(p).role not in ("position", "alias") and p in both.left.leaves]
        found_here = [both.evidence(p, after_resume(index)) for p in both.ranked(here, RANK)]
        # an element is taken by the name of what holds it
        holders = [e._replace(path=_container(e.path, both.left.leaves)) for e in found_here]
        if taken := [e for e, held in zip(found_here, holders, strict=True) if is_taken(held, uninterrupted)]:
            return taken
        if index == 0:  # what an object of a library holds, such as its position, is taken by the name of the object
            changing = [e for e in found_here if e.path in uninterrupted.changing]
            held = [e for e in changing if _is_held(e, uninterrupted, handed=_is_handed_on(e.path, found))]
            if held:
                return held
        # one object of two names that is two after the resume: nothing differs there before a step changes one
        apart = [p for p in differ if _is_parted(p, both)] if index == 0 else []
        if apart:
            return [both.evidence(p, after_resume(0)) for p in sorted(apart)]
    return []


def _is_held(e: Evidence, uninterrupted: Uninterrupted, *, handed: bool = False) -> bool:
    """Return whether code takes the variable that a value is in, and neither takes nor sets the value by its name.

    A loss that is shown is none, unless it was handed on, as a mean of Flax that is kept in a list and reset.
    """
    words, use = identifiers(OUTER.sub("", e.path)), uninterrupted.use
    if len(words) < 2 or (e.component == "loss" and not handed):
        return False
    if use.reads(INSIDE + words[-1]) or use.sets(words[-1]):
        return False
    return use.reads(VARIABLE + words[0])


def _is_handed_on(path: str, found: Sequence[Sequence[str]]) -> bool:
    """Return whether a value differs until another one does that stays so, and is equal from that mark on."""
    stays = {one for one in found[-1] if one not in found[0]}
    first = next((at for at, differ in enumerate(found) if stays & set(differ)), 0)
    return first > 0 and all((path in differ) == (at < first) for at, differ in enumerate(found))


def _is_parted(path: str, both: TwoStates) -> bool:
    """Return whether a path is another name of an object in the uninterrupted run, and an object of its own now."""
    left, right = both.left.leaves.get(path), both.right.leaves.get(path)
    if left is None or left.role != "alias" or (right is not None and right.role == "alias"):
        return False
    return right is not None or any(p.startswith((f"{path}.", f"{path}[")) for p in both.right.leaves)


def _container(path: str, leaves: Mapping[str, Leaf]) -> str:
    """Return the path of the outermost list, dict or set that a value is in; else its own."""
    ends = [at for at, letter in enumerate(path) if letter in ".["]
    return next((path[:at] for at in ends if f"{path[:at]}.len" in leaves), path)


def is_variable(path: str) -> bool:
    """Return whether a path is a variable of the loop, of whichever rank.

    Example:
        >>> is_variable("rank1:x"), is_variable("x"), is_variable("x.y")
        (True, True, False)
    """
    return _OF_A_RANK.sub("", path).isidentifier()


_OF_A_RANK = re.compile(r"rank\d+:")


def holders_of(path: str) -> set[str]:
    """Return the names of a value and of the containers that it is an element of.

    Example:
        >>> sorted(holders_of("data.kept[0].v"))
        ['kept', 'v']
    """
    ends = [at for at, letter in enumerate(path) if letter == "["] + [len(path)]
    return {words[-1] for end in ends if (words := identifiers(path[:end]))}


def identifiers(path: str) -> list[str]:
    """Return the names that a path is made of, the last one that of the value itself."""
    return [word for word in re.split(r"[^0-9A-Za-z_]+", path) if word and not word.isdigit()]
