"""Rules made of rules: one after the other, all at once, and beside each other on one optimizer."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from parity.schedules.rule import AnyRule, PositionBase, ScheduleRule
from parity.schedules.values import Groups, Number, shown

__all__ = ["Beside", "Chained", "Sequential", "TreePosition"]


@dataclass(frozen=True, slots=True)
class TreePosition(PositionBase):
    """The positions of several rules."""

    children: tuple[Any, ...]
    """Position of each rule."""
    epoch: int = 0
    """Steps that a sequence has taken; 0 for the others."""


@dataclass(frozen=True, kw_only=True)
class _RuleTree(ScheduleRule[TreePosition]):
    """A rule made of rules, which share the values of the parameter groups."""

    position: ClassVar[type[PositionBase]] = TreePosition

    rules: tuple[AnyRule, ...]
    """The rules, in the order in which they are built."""

    def __post_init__(self) -> None:
        if not isinstance(self.rules, tuple) or not self.rules:
            raise self.error("rules", f"must be a tuple of at least one rule, got {shown(self.rules)}")
        for number, rule in enumerate(self.rules):
            if not isinstance(rule, ScheduleRule):
                raise self.error(f"rules[{number}]", f"must be a rule, got {type(rule).__name__}")
            if isinstance(rule, Beside):
                raise self.error(f"rules[{number}]", "beside others are whole schedules, not parts of one")
            if rule.metric and not isinstance(self, Beside):
                problem = "moves by a metric, which only `Beside` can give it: Beside(rules=(..., Plateau(...)))"
                raise self.error(f"rules[{number}]", f"{rule.kind} {problem}")

    @property
    def momentum(self) -> bool:
        """Whether one of the rules moves the momentum."""
        return any(rule.momentum for rule in self.rules)

    def fit(self, count: int) -> None:
        """Check the rules against a number of parameter groups."""
        for rule in self.rules:
            rule.fit(count)

    def build(self, groups: Groups) -> tuple[TreePosition, Groups]:
        """Return the position and values after construction, the first rates included."""
        children = []
        for rule in self.rules:
            child, groups = rule.build(groups)
            children.append(child)
        return TreePosition(groups.rates, tuple(children)), groups

    def step(self, position: TreePosition, groups: Groups, metric: float | None) -> tuple[TreePosition, Groups]:
        """Return the next position and values: those of each rule that moves by what is given, a step or a metric."""
        children = list(position.children)
        for number, rule in enumerate(self.rules):
            if rule.metric == (metric is not None):
                children[number], groups = rule.step(children[number], groups, metric)
        return TreePosition(groups.rates, tuple(children)), groups

    def undo(self, position: TreePosition) -> TreePosition:
        """Return the position with each rule one step back; a sequence keeps its own count, as in PyTorch."""
        pairs = zip(self.rules, position.children, strict=True)
        return replace(position, children=tuple(rule.undo(child) for rule, child in pairs))

    def begin(self, position: TreePosition, groups: Groups) -> tuple[TreePosition, Groups]:
        """Return the position and values when these rules give the first rates of a sequence: an ordinary step."""
        return self.step(position, groups, None)

    def restart(self, position: TreePosition, groups: Groups) -> tuple[TreePosition, Groups]:
        """Refuse: PyTorch cannot start these at a milestone, so there is nothing to be equal to.

        Raises:
            ScheduleError: Always.
        """
        raise self.error("", "has no closed form, so a sequence cannot come to it later; let it be its first rule")


@dataclass(frozen=True, kw_only=True)
class Sequential(_RuleTree):
    """One rule after the other, each from its milestone on.

    Numerics: a rule that has a closed form begins with it, from the rates that it was built with; others continue
    from the rate before. What rules write when they are built stays: the one-cycle rule changes the initial rates.

    Source: `torch.optim.lr_scheduler.SequentialLR` (torch 2.13).

    Raises:
        ScheduleError: `rules` is no tuple of rules, or one of them moves by a metric or is a `Beside`; a rule made of
            rules begins after step 0; or the milestones are not one fewer than the rules.

    Example:
        >>> from parity.schedules import Linear, Schedule, Step
        >>> warmup, decay = Linear(start_factor=0.5, total_iters=2), Step(step_size=2, gamma=0.5)
        >>> Schedule(Sequential(rules=(warmup, decay), milestones=(2,)), [1.0]).take(7).rates[:, 0].tolist()
        [0.5, 0.75, 1.0, 1.0, 0.5, 0.5, 0.25]
    """

    kind: ClassVar[str] = "sequential"

    milestones: tuple[Number, ...]
    """Step at which each rule after the first begins."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.milestones, tuple) or len(self.milestones) != len(self.rules) - 1:
            raise self.error("milestones", f"must be {len(self.rules) - 1} steps, got {shown(self.milestones)}")
        if self.milestones:
            self.require_values("milestones")
        for rule, milestone in zip(self.rules[1:], self.milestones, strict=True):
            if isinstance(rule, _RuleTree) and milestone > 0:
                rule.restart(TreePosition((), ()), Groups(()))

    def build(self, groups: Groups) -> tuple[TreePosition, Groups]:
        """Return the position and values after construction; only the first rule's first rates count."""
        built, groups = super().build(groups)
        if groups.initial is not None:
            groups = groups._replace(rates=groups.initial)
        waiting = self.undo(built).children
        active = bisect_right(self.milestones, 0)
        child, groups = self.rules[active].begin(waiting[active], groups)
        return self._with(waiting, active, child, 0), groups

    def step(self, position: TreePosition, groups: Groups, metric: float | None) -> tuple[TreePosition, Groups]:
        """Return the next position and values: those of the rule whose turn it is."""
        epoch = position.epoch + 1
        active = bisect_right(self.milestones, epoch)
        rule, child = self.rules[active], position.children[active]
        if active > 0 and self.milestones[active - 1] == epoch:
            child, groups = rule.restart(child, groups)
        else:
            child, groups = rule.step(child, groups, None)
        return self._with(position.children, active, child, epoch), groups

    def _with(self, children: tuple[Any, ...], active: int, child: PositionBase, epoch: int) -> TreePosition:
        return TreePosition(child.last, (*children[:active], child, *children[active + 1 :]), epoch)


@dataclass(frozen=True, kw_only=True)
class Chained(_RuleTree):
    """All rules at every step, each on the rate that the one before it left.

    Source: `torch.optim.lr_scheduler.ChainedScheduler` (torch 2.13).

    Raises:
        ScheduleError: `rules` is no tuple of rules, or one of them moves by a metric or is a `Beside`.

    Example:
        >>> from parity.schedules import Constant, Exponential, Schedule
        >>> rule = Chained(rules=(Constant(factor=0.5, total_iters=2), Exponential(gamma=0.5)))
        >>> Schedule(rule, [1.0]).take(4).rates[:, 0].tolist()
        [0.5, 0.25, 0.25, 0.125]
    """

    kind: ClassVar[str] = "chained"


@dataclass(frozen=True, kw_only=True)
class Beside(_RuleTree):
    """Rules of one optimizer that move on their own: `step()` those of steps, `step(metric)` those by a metric.

    In PyTorch these are several scheduler objects, such as a warm-up that is stepped after every batch and a
    `ReduceLROnPlateau` that is stepped after every validation.

    Raises:
        ScheduleError: `rules` is no tuple of rules, or one of them is a `Beside` itself.

    Example:
        >>> from parity.schedules import Constant, Plateau, Schedule
        >>> rule = Beside(rules=(Constant(factor=0.5, total_iters=1), Plateau(patience=0, factor=0.5)))
        >>> schedule = Schedule(rule, [0.8])
        >>> schedule.step()  # after a training step: the constant rule ends
        >>> schedule.rates
        (0.8,)
        >>> schedule.step(0.9)  # after a validation
        >>> schedule.step(0.9)
        >>> schedule.rates
        (0.4,)
    """

    kind: ClassVar[str] = "beside"

    @property
    def metric(self) -> bool:
        """Whether one of the rules moves by a metric."""
        return any(rule.metric for rule in self.rules)

    @property
    def steps(self) -> bool:
        """Whether one of the rules moves by training steps."""
        return any(rule.steps for rule in self.rules)

    def step(self, position: TreePosition, groups: Groups, metric: float | None) -> tuple[TreePosition, Groups]:
        """Return the next position and values of the rules that the call is for.

        Raises:
            ScheduleError: There is no metric, and no rule moves by training steps.
        """
        if metric is None and not self.steps:
            raise self.error("", "needs the metric of this validation: step(metric)")
        return super().step(position, groups, metric)
