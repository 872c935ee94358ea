"""What a night has to say: a text for people, and a JUnit file for the systems that run it."""

from __future__ import annotations

from xml.etree import ElementTree

from paceline.base.counting import number_of
from paceline.report.html import page_of_tables
from paceline.report.tables.results import Table
from paceline.report.words.estimates import ABSENT
from paceline.workflows.nightly.alarms import Suspect
from paceline.workflows.nightly.outcomes import NightReport, UnitReport, outcome, summary

COLUMNS = ("faster", "slower", "equivalent", "inconclusive", "incomparable", "invalid", "failed", "skipped")


def markdown(report: NightReport) -> str:
    """Return a night as Markdown: alarms first, then how much was decided, then what was not measured at all."""
    lines = [f"# {report.nightly}, {report.started[:16].replace('T', ' ')} UTC", ""]
    alarms = report.alarms
    lines.append(f"**{number_of(len(alarms), 'alarm')}.**" if alarms else "No alarm.")
    lines += ["", *(f"- {_alarm_text(a)}" for a in alarms)]
    lines += ["", *told(report), "", units_table(report).render("markdown").rstrip("\n")]
    open_ = [s for u in report.units for s in u.unconfirmed]
    if open_:
        lines += ["", "Suspects that were not confirmed, and are no alarm:", ""]
        lines += [f"- {s.text}" for s in open_]
    return "\n".join(lines) + "\n"


def told(report: NightReport) -> list[str]:
    """Say how many comparisons were decided, and name what was not measured, with the reason."""
    total = report.tally
    asked = total.decided + total.inconclusive + total.incomparable
    lines = [f"Of {number_of(asked, 'comparison')} {total.text()}."]
    left = [u for u in report.units if u.outcome != "measured"]
    if left:
        lines += ["", f"Not measured, {len(left)} of {len(report.units)}:", ""]
        lines += [f"- {u.name}: {_one_line(u.why)}" for u in left]
    return lines


def units_table(report: NightReport) -> Table:
    """Return what became of every unit, one a row."""
    rows = tuple((u.name, *_counts(u), _one_line(outcome(u)).replace("|", "/")) for u in report.units)
    return Table(title="What was measured", headers=("measured", *COLUMNS, "what came of it"), rows=rows)


def _counts(unit: UnitReport) -> tuple[str, ...]:
    if unit.outcome != "measured":
        return (ABSENT,) * len(COLUMNS)
    return tuple(str(getattr(unit.tally, name)) for name in COLUMNS)


def _one_line(text: str) -> str:
    return (text.splitlines() or [""])[0]


def page(report: NightReport) -> str:
    """Return a night as a page of the site."""
    alarms = Table(
        title=number_of(len(report.alarms), "alarm") if report.alarms else "No alarm",
        headers=("alarm",),
        rows=tuple((_alarm_text(a),) for a in report.alarms),
    )
    rows = tuple((line.removeprefix("- "),) for line in told(report) if line)
    decided = Table(
        title="How much was decided", headers=("comparisons, and what was not measured",), rows=rows
    )
    return page_of_tables(f"{report.nightly}, {report.started[:10]}", [alarms, decided, units_table(report)])


def _alarm_text(alarm: Suspect) -> str:
    moved = " (its baseline too: the machine or a library may have changed)" if alarm.point_moved else ""
    return f"{alarm.text}{moved}"


def junit(report: NightReport) -> str:
    """Return a night as JUnit XML: an alarm is a failure, a machine that failed an error."""
    root = ElementTree.Element(
        "testsuite", name=f"paceline nightly {report.nightly}", timestamp=report.started[:19]
    )
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for unit in report.units:
        kind = _add_case(root, unit)
        counts["tests"] += 1
        if kind:
            counts[kind] += 1
    for key, number in counts.items():
        root.set(key, str(number))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_case(root: ElementTree.Element, unit: UnitReport) -> str | None:
    """Add a unit as a test case; return which counter it belongs to beside that of all tests."""
    case = ElementTree.SubElement(root, "testcase", classname="paceline.nightly", name=unit.name)
    if unit.outcome == "measured":
        counts = ElementTree.SubElement(case, "properties")
        for name in COLUMNS:
            ElementTree.SubElement(counts, "property", name=name, value=str(getattr(unit.tally, name)))
    kind = _add_ending(case, unit)
    ElementTree.SubElement(case, "system-out").text = summary(unit)
    return kind


def _add_ending(case: ElementTree.Element, unit: UnitReport) -> str | None:
    """Add what kind of ending it was, where it was not a good one."""
    if unit.alarms:
        failure = ElementTree.SubElement(case, "failure", message=number_of(len(unit.alarms), "alarm"))
        failure.text = "\n".join(_alarm_text(a) for a in unit.alarms)
        return "failures"
    if unit.outcome == "failed" or unit.infrastructure:
        error = ElementTree.SubElement(case, "error", message=summary(unit).splitlines()[0])
        error.text = "\n".join(dict.fromkeys(unit.infrastructure)) or unit.why
        return "errors"
    if unit.outcome == "skipped":
        ElementTree.SubElement(case, "skipped", message=unit.why[:400])
        return "skipped"
    return None
