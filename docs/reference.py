"""The pages of the API reference, from the sources alone: nothing is imported, no framework or device is needed.

Docstrings are Markdown with Google's sections, so the pages are Markdown too: MyST, with the directives of Sphinx's
Python domain, which give the index, the search and the links.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import griffe

__all__ = ["modules", "pages"]

LONGEST_VALUE = 80
"""Characters of a value that is shown; longer ones are for the source."""

HEADS = {
    griffe.DocstringSectionKind.parameters: "param {name}",
    griffe.DocstringSectionKind.attributes: "ivar {name}",
    griffe.DocstringSectionKind.raises: "raises {annotation}",
    griffe.DocstringSectionKind.returns: "returns",
    griffe.DocstringSectionKind.yields: "yields",
}
"""Sections that become a field of the Python domain for each of their items."""


def modules(root: Path) -> Iterator[griffe.Module]:
    """Yield every public module of the packages that are type-checked, parents before their children."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    names = settings["tool"]["mypy"]["packages"]
    loader = griffe.GriffeLoader(search_paths=[root], docstring_parser="google", allow_inspection=False)
    for name in names:
        package = loader.load(name, try_relative_path=False)
        assert isinstance(package, griffe.Module)
        for module in _walk(package):
            _qualify(module, names)
            yield module


def pages(root: Path) -> dict[str, str]:
    """Return the Markdown of each page by its name: the index, and one page for each public module.

    Raises:
        ValueError: A docstring has a section that is not shown yet.
    """
    found = list(modules(root))
    packages = [module for module in found if module.parent is None]
    return {"index": _index(packages), **{module.path: _page(module) for module in found}}


def _walk(module: griffe.Module) -> Iterator[griffe.Module]:
    yield module
    for child in _children(module):
        yield from _walk(child)


def _children(module: griffe.Module) -> list[griffe.Module]:
    children = sorted(module.modules.items())
    return [child for name, child in children if not name.startswith("_") and not child.is_alias]


def _index(packages: list[griffe.Module]) -> str:
    overviews = "Every module: {ref}`modindex`; every name: {ref}`genindex`."
    return f"# API reference\n\n{_contents(packages)}\n\n{overviews}\n"


def _contents(found: list[griffe.Module]) -> str:
    """Return links to the pages of modules; the tree is hidden, because it would show no summaries."""
    tree = "\n".join(["```{toctree}", ":hidden:", *(module.path for module in found), "```"])
    links = "\n".join(f"- {{doc}}`{module.path} <{module.path}>`: {_summary(module)}" for module in found)
    return f"{tree}\n\n{links}" if found else ""


def _page(module: griffe.Module) -> str:
    # With __all__, it decides; the public modules of a package have pages of their own.
    members = [member for member in module.members.values() if member.is_public and not member.is_module]
    aliases = [member for member in members if isinstance(member, griffe.Alias)]
    targets = [alias.target_path for alias in aliases]
    # A function of its module's name is hidden by that module here: `parity.checkpoints.verify.verify`.
    hidden = [name for name in map(str, module.exports or []) if module.members[name].is_module]
    targets += [f"{module.path}.{name}.{name}" for name in hidden]
    reexported = ", ".join(f"{{py:obj}}`~{target}`" for target in sorted(targets))
    blocks = [
        f"# `{module.path}`",
        f"```{{py:module}} {module.path}\n:synopsis: {json.dumps(_summary(module))}\n```",
        _docstring(module),
        _contents(_children(module)),
        f"Imported here as well: {reexported}." if reexported else "",
        *(_describe(member, depth=0) for member in members if isinstance(member, griffe.Object)),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _qualify(member: griffe.Object, packages: list[str]) -> None:
    """Give names of these packages their full path in annotations; after a tilde, only its last part is shown.

    Both sides have a `Dtypes`, and each must link its own.
    """
    for child in member.members.values():
        if isinstance(child, (griffe.Alias, griffe.Module)):
            continue
        annotations = [getattr(child, "annotation", None)]
        if isinstance(child, griffe.Function):
            annotations += [parameter.annotation for parameter in child.parameters]
        for annotation in annotations:
            for part in annotation.iterate(flat=True) if isinstance(annotation, griffe.Expr) else []:
                if isinstance(part, griffe.ExprName) and part.canonical_path.partition(".")[0] in packages:
                    part.name = f"~{part.canonical_path}"
        _qualify(child, packages)


def _describe(member: griffe.Object, depth: int) -> str:
    """Return the directive of a class, function or attribute; what is inside of it has one colon fewer."""
    if isinstance(member, griffe.Class):
        arguments, options, inside = _class(member, depth)
    elif isinstance(member, griffe.Function):
        arguments, options, inside = f" {member.signature()}", [], []
    else:
        assert isinstance(member, griffe.Attribute)
        arguments, options, inside = f" {member.name}", _typed(member), []
    fence = ":" * (6 - depth)
    opened = "\n".join([f"{fence}{{py:{_kind(member, depth)}}}{arguments}", *options])
    return "\n\n".join(block for block in (opened, _docstring(member), *inside, fence) if block)


def _kind(member: griffe.Object, depth: int) -> str:
    if isinstance(member, griffe.Class):
        family = [member.name, *map(str, member.bases)]
        return "exception" if any(name.endswith(("Error", "Exception", "Warning")) for name in family) else "class"
    if isinstance(member, griffe.Attribute):
        return "property" if "property" in member.labels else "attribute" if depth else "data"
    method = next((kind for kind in ("classmethod", "staticmethod") if kind in member.labels), "method")
    return method if depth else "function"


def _class(member: griffe.Class, depth: int) -> tuple[str, list[str], list[str]]:
    """Return the arguments of a class's directive, its options, and what is shown inside."""
    start = member.members.get("__init__")
    # The fields of a dataclass are its arguments, and each is shown with its docstring below.
    own = start if isinstance(start, griffe.Function) and "dataclass" not in member.labels else None
    signature = own.signature(return_type=False).removeprefix("__init__") if own else ""
    bases = f"Bases: {', '.join(f'`{base}`' for base in member.bases)}." if member.bases else ""
    members = [one for one in member.members.values() if isinstance(one, griffe.Object)]
    shown = [one for one in members if one.is_public and not one.is_special]
    listed = {item.name for section in _sections(member) for item in _items(section, "attributes")}
    inside = [_describe(one, depth + 1) for one in shown if one.name not in listed or one.has_docstring]
    return f" {member.name}{signature}", [], [bases, *inside]


def _typed(member: griffe.Attribute) -> list[str]:
    """Return type and value of an attribute as options; in quotes, because they are read as YAML."""
    options = {"type": member.annotation, "value": None if "property" in member.labels else member.value}
    texts = {name: str(value) for name, value in options.items() if value is not None}
    return [f":{name}: {json.dumps(text)}" for name, text in texts.items() if len(text) <= LONGEST_VALUE]


def _sections(member: griffe.Object) -> list[griffe.DocstringSection]:
    return member.docstring.parsed if member.docstring else []


def _items(section: griffe.DocstringSection, kind: str) -> list[griffe.DocstringNamedElement]:
    return section.value if section.kind.value == kind else []


def _docstring(member: griffe.Object) -> str:
    return "\n\n".join(_section(member, section) for section in _sections(member))


def _section(member: griffe.Object, section: griffe.DocstringSection) -> str:
    if section.kind in HEADS:
        return "\n".join(_field(HEADS[section.kind], item) for item in section.value)
    if section.kind is griffe.DocstringSectionKind.text:
        return _sessions(section.value)
    if section.kind is griffe.DocstringSectionKind.admonition:
        return f"**{section.title}.**\n\n{_sessions(section.value.description)}"
    raise ValueError(
        f"{member.path}: section {section.kind.value!r} of the docstring: docs/reference.py cannot show it"
    )


def _field(head: str, item: griffe.DocstringElement) -> str:
    name = head.format(name=getattr(item, "name", ""), annotation=item.annotation)
    return f":{name}: {' '.join(item.description.split())}"


def _sessions(text: str) -> str:
    """Return a text with its interactive sessions as code; Markdown would take `>>>` for a quotation."""
    return re.sub(r"(?m)^>>> .*(?:\n.+)*", r"```pycon\n\g<0>\n```", text)


def _summary(member: griffe.Object) -> str:
    text = member.docstring.value if member.docstring else ""
    return " ".join(text.partition("\n\n")[0].split())
