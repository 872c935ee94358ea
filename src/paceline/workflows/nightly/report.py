"""What a night has to say: a text for people, and a JUnit file for the systems that run it."""

from __future__ import annotations

from xml.etree import ElementTree

from paceline.workflows.nightly.alarms import Suspect
from paceline.workflows.nightly.night import NightReport, UnitReport, summary


def markdown(report: NightReport) -> str:
    """Return a night as Markdown: alarms first."""
    lines = [f"# {report.nightly}, {report.started[:16].replace('T', ' ')} UTC", ""]
    alarms = report.alarms
    lines.append(f"**{len(alarms)} alarms.**" if alarms else "No alarm.")
    lines += ["", *(f"- {_alarm_text(a)}" for a in alarms)]
    lines += ["", "| measured | what came of it |", "|---|---|"]
    lines += [f"| {u.name} | {summary(u).replace('|', '/').splitlines()[0]} |" for u in report.units]
    open_ = [s for u in report.units for s in u.unconfirmed]
    if open_:
        lines += ["", "Suspects that were not confirmed, and are no alarm:", ""]
        lines += [f"- {s.text}" for s in open_]
    return "\n".join(lines) + "\n"


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
    if unit.alarms:
        failure = ElementTree.SubElement(case, "failure", message=f"{len(unit.alarms)} alarms")
        failure.text = "\n".join(_alarm_text(a) for a in unit.alarms)
        return "failures"
    if unit.outcome == "failed" or unit.infrastructure:
        ElementTree.SubElement(case, "error", message=summary(unit)[:400])
        return "errors"
    if unit.outcome == "skipped":
        ElementTree.SubElement(case, "skipped", message=unit.why[:400])
        return "skipped"
    return None
