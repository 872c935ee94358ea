"""What is in an image, as a CycloneDX bill of materials. Pure: the same image gives the same text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

SPEC = "1.5"
INSTALLED = "install ok installed"


def dpkg_packages(status: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, version and architecture of what a dpkg status file says is installed."""
    for paragraph in status.split("\n\n"):
        fields = dict(
            line.split(": ", 1)
            for line in paragraph.splitlines()
            if ": " in line and not line.startswith(" ")
        )
        # Images without a package manager keep one file a package, which says nothing of a status.
        if "Package" in fields and "Version" in fields and fields.get("Status", INSTALLED) == INSTALLED:
            yield fields["Package"], fields["Version"], fields.get("Architecture", "all")


def bill_of_materials(image: str, image_id: str, survey: Mapping[str, Any]) -> str:
    """Return the bill of an image.

    Args:
        image: Its name.
        image_id: The digest of its configuration.
        survey: What the image said: ``pypi``, ``dpkg``, ``os`` and ``python``.
    """
    system = dict(line.split("=", 1) for line in survey["os"].splitlines() if "=" in line)
    vendor = system.get("ID", "debian").strip('"')
    debs = sorted(set(dpkg_packages(survey["dpkg"])))
    components = [
        *(
            _component(name, version, f"pkg:deb/{vendor}/{_quoted(name)}@{_quoted(version)}?arch={arch}")
            for name, version, arch in debs
        ),
        *(
            _component(
                name, version, f"pkg:pypi/{_quoted(name.lower().replace('_', '-'))}@{_quoted(version)}"
            )
            for name, version in sorted((str(n), str(v)) for n, v in survey["pypi"])
        ),
    ]
    found = {
        "io.paceline:python": survey["python"],
        "io.paceline:system": system.get("PRETTY_NAME", "unknown").strip('"'),
        "io.paceline:system-packages": str(len(debs)) if debs else "absent: the image has no dpkg database",
    }
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC,
        "version": 1,
        "metadata": {
            "component": {"type": "container", "name": image, "version": image_id, "bom-ref": image_id},
            "properties": [{"name": name, "value": value} for name, value in found.items()],
        },
        "components": components,
    }
    return json.dumps(bill, indent=1, ensure_ascii=False) + "\n"


def _component(name: str, version: str, purl: str) -> dict[str, str]:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _quoted(text: str) -> str:
    return quote(text, safe="")
