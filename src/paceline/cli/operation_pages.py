"""The page ``docs/operations.md``: every operation, its parameters, what techniques are handed, what is checked.

Everything comes from the specifications of families and operations, from the classes of their ``api`` and from the
techniques' files; nothing is imported that needs torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from paceline.base.errors import UserError
from paceline.base.families.arguments import ROLES
from paceline.base.families.family import Family, Parameter, family_names, load_family
from paceline.base.families.operation import Operation
from paceline.base.units import format_duration, format_rate, format_size
from paceline.cli.authoring.starting import start_of
from paceline.spec import content
from paceline.spec.techniques.interface import ApiClass, Method, field_docs, interface_of, made_by, types_of

SOURCE = "../src/"
KINDS: Mapping[str, str] = {
    "size": "size, bytes",
    "count": "integer",
    "number": "number",
    "choice": "choice",
    "flag": "true or false",
    "duration": "duration, s",
    "rate": "rate, bytes/s",
    "text": "text",
}
"""How the page calls a parameter's kind, with the unit in which a technique is given it."""
HEAD = """\
# Operations

This page lists what can be measured: every operation of every family. It is for authors of [suites](suites.md), who
choose parameters and metrics, and of [techniques](adding-a-technique.md), who are handed arguments and have to keep
promises. `paceline list operations` prints one line each, `paceline show OPERATION` one of them;
`paceline new technique NAME --op FAMILY/OPERATION` begins a technique.
`python -m paceline.cli.reference docs` writes this page.

- **Shapes.** `(batch, heads, head_dim)`: each axis is as long as a parameter of the operation says, or a formula of
  some. `item bytes` are those of one element of `dtype`, the type that the point's parameter of that name says.
  In a tensor's name a suffix has one letter for each axis, `q_BHTK`; its class says what the letters mean.
- **Units.** A size may be written as `4KiB`, a duration as `5ms`, a rate as `100mbit`; techniques are given bytes,
  seconds and bytes per second. A default of – is none: what then holds stands in the meaning.
- **Calls.** `T(problem: Problem, comm: Comm, **options)`: the harness makes a technique with these arguments and with
  the options that the suite sets, and then calls its methods. `Comm` is the
  [communicator](adding-a-technique.md#adding-a-technique). Other types stand at the end of each family.
"""


def operations_page() -> str:
    """Return docs/operations.md."""
    families = [f for f in map(load_family, family_names()) if f.operations]
    lines = [HEAD]
    for family in families:
        links = " · ".join(_link(f"`{name}`", _heading(family, name)) for name in family.operations)
        lines.append(f"- {_link(f'**{family.name}**', family.name.capitalize())}: {links}")
    for family in families:
        lines += ["", *_family(family)]
    lines += ["", *_classes_of_promises(families)]
    return "\n".join(lines).rstrip() + "\n"


def _family(family: Family) -> Iterator[str]:
    sources = list(content.techniques(family.name).values())
    shared = [p for p in family.parameters if _is_shared(family, p)]
    yield f"## {family.name.capitalize()}"
    yield f"{family.summary} Metrics: {_metrics_link(family, 'what each means')}.\n"
    if shared:
        yield f"### {_shared_heading(family)}"
        yield "Each operation names those that it has.\n"
        yield from _parameters(shared)
    shown: dict[tuple[str, str], str] = {}
    handed: list[ApiClass] = []
    for operation in family.operations.values():
        interface = interface_of(family.name, operation)
        made, types = _made(family.name, operation, interface)
        handed += types if interface is None else [interface, *types]
        yield f"### {_heading(family, operation.name)}"
        folder = f"src/paceline/families/{family.name}/ops/{operation.name}"
        yield f"{operation.summary} Source: [ops/{operation.name}](../{folder})\n"
        if interface is None:
            yield "**A technique** is not called: the harness reads where its options say the work is done.\n"
        else:
            yield from _handed(_heading(family, operation.name), operation, interface, made, shown)
        yield from _own_parameters(family, operation)
        yield from _measured(family, operation)
        yield from _asked(operation)
        implementing = {s.info.name: s for s in sources if operation.name in s.info.implements}
        named = ", ".join(f"[{name}]({_file(implementing[name].path)})" for name in sorted(implementing))
        yield f"**Techniques:** {named or 'none is shipped; `paceline kernel` writes them'}\n"
    rest = [t for t in types_of(family.name, handed) if (t.module, t.name) not in shown]
    if rest:
        yield f"### Types of {family.name}"
        yield "What techniques are handed and return; each is imported from the module before its name.\n"
    for item in rest:
        yield f"#### {_type_heading(item)}"
        yield from _type(item)


def _measured(family: Family, operation: Operation) -> Iterator[str]:
    if operation.metrics:
        computed = [c for c in family.computed if not c.operations or operation.name in c.operations]
        names = [*(m.name for m in operation.metrics), *(c.metric.name for c in computed)]
        derived = (
            f"; reports compute {_listed(d.name for d in operation.derived)}" if operation.derived else ""
        )
        yield f"**{_metrics_link(family, 'Metrics')}:** {_listed(names)}{derived}\n"


def _asked(operation: Operation) -> Iterator[str]:
    for place, what in (
        (operation.properties, "Promises"),
        (operation.requirements, "Requirements"),
    ):
        keys = [f.name for f in fields(place)]
        told = f"{_listed(keys)}: {_link(place.__name__, _class_heading(place))}" if keys else "none"
        yield f"**{what}:** {told}\n"


def _classes_of_promises(families: Iterable[Family]) -> Iterator[str]:
    operations = [o for family in families for o in family.operations.values()]
    yield "## Promises and requirements"
    yield "A technique promises in `properties` what is then checked."
    yield "It requires in `requires` what a case must offer; one that does not is `unsupported`."
    yield "[How both are written](adding-a-technique.md#what-it-may-promise-and-require).\n"
    for kind in ("properties", "requirements"):
        places = {getattr(o, kind) for o in operations}
        for place in sorted((p for p in places if fields(p)), key=_class_heading):
            yield f"### {_class_heading(place)}"
            yield f"{_sentences(place.__doc__ or '')}\n"
            yield from _keys(place)


def _class_heading(place: type) -> str:
    return f"{place.__module__.removeprefix('paceline.').removeprefix('families.')}.{place.__name__}"


def _handed(
    heading: str,
    operation: Operation,
    interface: ApiClass,
    made: Sequence[str],
    shown: dict[tuple[str, str], str],
) -> Iterator[str]:
    key = (interface.module, interface.name)
    how = f"**A technique** is made as `T({', '.join([*made, '**options'])})`"
    if operation.arguments:
        what = _link(f"`{interface.name}`", _type_heading(interface))
        yield f"{how} and is a {what}. Its `run` is given, in this order:\n"
        yield "| argument | shape | type | | |\n|---|---|---|---|---|"
        for a in operation.arguments:
            shape = f"({', '.join(a.shape)}{',' if len(a.shape) == 1 else ''})"
            yield _row(f"`{a.name}`", f"`{shape}`", a.dtype, ROLES[a.role], a.doc)
        yield ""
    elif key in shown:
        yield f"{how} and is a {_link(f'`{interface.name}`', shown[key])}, whose methods are called.\n"
    else:
        shown[key] = heading
        yield f"{how} and is a `{interface.name}` of `{interface.module}`:\n"
        yield from _type(interface)


def _own_parameters(family: Family, operation: Operation) -> Iterator[str]:
    having = [p for p in family.parameters_for(operation.name) if p.name != family.operation_key]
    own = [p for p in having if not _is_shared(family, p)]
    shared = [p for p in having if _is_shared(family, p)]
    if own:
        yield "**Parameters** of its own:\n"
        yield from _parameters(own)
    if shared:
        fixed = [f"`{name}` is {_value(family, name, value)}" for name, value in operation.fixed.items()]
        told = f"; here {', '.join(fixed)} at every point" if fixed else ""
        others = _link("others have, too", _shared_heading(family))
        yield f"**Parameters** that {others}: {_listed(p.name for p in shared)}{told}\n"


def _value(family: Family, name: str, value: object) -> str:
    parameter = family.parameter(name)
    assert parameter is not None, f"{family.name} fixes {name}, which it does not have"
    return _shown(parameter, value)


def _is_shared(family: Family, parameter: Parameter) -> bool:
    """Whether several operations of a family have a parameter, or the family has one operation for all."""
    return (
        parameter.name != family.operation_key
        and len(family.operations) > 1
        and (not parameter.only_for or len(parameter.only_for) > 1)
    )


def _parameters(parameters: Iterable[Parameter]) -> Iterator[str]:
    yield "| parameter | meaning | kind and unit | default | allowed |\n|---|---|---|---|---|"
    for p in parameters:
        default = "required" if p.required else _shown(p, p.default)
        yield _row(f"`{p.name}`", p.doc, KINDS[p.kind], default, _allowed(p))
    yield ""


def _shown(parameter: Parameter, value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int | float) and parameter.kind in ("size", "duration", "rate"):
        write = {"size": format_size, "duration": format_duration, "rate": format_rate}[parameter.kind]
        return f"`{write(value)}`"
    return "empty" if value == "" else f"`{value}`"


def _allowed(parameter: Parameter) -> str:
    if parameter.choices:
        return f"{_listed(parameter.choices)}{', or as said' if parameter.form else ''}"
    if parameter.minimum is not None:
        return f"{_shown(parameter, parameter.minimum)} or more"
    usual = {"duration": "`0s` or more", "rate": "above 0", "size": "`0B` or more", "text": "as said"}
    return usual.get(parameter.kind, "")


def _keys(place: type[Any]) -> Iterator[str]:
    """Yield a table of a dataclass's fields, with what stands below each."""
    docs = field_docs(place)
    yield "| key | type | default | |\n|---|---|---|---|"
    for f in fields(place):
        yield _row(f"`{f.name}`", f"`{f.type}`", _default(f), docs[f.name])
    yield ""


def _default(field: Field[Any]) -> str:
    if field.default is MISSING:
        return "–" if field.default_factory is MISSING else f"`{field.default_factory()!r}`"
    return "none" if field.default in ((), None) else f"`{field.default}`"


def _made(
    family: str, operation: Operation, interface: ApiClass | None
) -> tuple[Sequence[str], list[ApiClass]]:
    """Return the arguments that techniques of an operation are made with, and their types."""
    try:
        return made_by(start_of(family, operation.name))
    except UserError:
        assert interface is not None and interface.constructor is not None, (
            f"nobody says how {operation.name} is made"
        )
        inside = interface.constructor.signature.partition("(")[2].rpartition(")")[0]
        return [inside], []


def _type(item: ApiClass) -> Iterator[str]:
    if item.alias:
        yield f"Stands for `{item.alias}`. {item.doc}\n"
        return
    bases = f" Derives from {_listed(item.bases)}." if item.bases else ""
    yield f"{_sentences(item.doc)}{bases}\n"
    if item.fields:
        yield "| field | type | default | |\n|---|---|---|---|"
        for f in item.fields:
            yield _row(f"`{f.name}`", f"`{f.annotation}`", f"`{f.default}`" if f.default else "", f.doc)
        yield ""
    for method in item.methods:
        yield f"- {_method(method)}"
    if item.methods:
        yield ""


def _method(method: Method) -> str:
    text = _sentences(method.doc)
    return f"`{method.signature}`{f': {text}' if text else ''}"


def _sentences(doc: str) -> str:
    """Return a docstring on one line; what it says of arguments, results and errors comes after its sentences."""
    before, *sections = re.split(r"\n(Args|Returns|Raises|Attributes|Yields):\n", f"{doc}\n")
    text = " ".join(before.split())
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        parts = " ".join(
            " ".join(line.split()) if re.match(r" {4}\S", line) is None else f"\0{line.strip()}"
            for line in body.splitlines()
        )
        items = [" ".join(part.split()) for part in parts.split("\0") if part.strip()]
        if title in ("Returns", "Yields"):
            text += f" {title}: {' '.join(items)}"
        else:
            named = (re.sub(r"^(\w+): ", r"`\1`: ", item) for item in items)
            text += f" {title}: {' '.join(named)}"
    return text.replace("``", "`")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|').replace('``', '`') for cell in cells)} |"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _file(path: Path) -> str:
    return f"../baselines/{path.parent.name}/{path.name}"


def _heading(family: Family, operation: str) -> str:
    return f"{family.name}/{operation}"


def _shared_heading(family: Family) -> str:
    return f"Parameters of several operations of {family.name}"


def _type_heading(item: ApiClass) -> str:
    return f"{item.module.removeprefix('paceline.families.')}.{item.name}"


def _metrics_link(family: Family, text: str) -> str:
    return f"[{text}](metrics.md#{family.name})"


def _link(text: str, heading: str) -> str:
    return f"[{text}](#{anchor(heading)})"


def anchor(heading: str) -> str:
    """Return the anchor that a heading gets where Markdown is shown: lower case, without signs, hyphens for spaces."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
