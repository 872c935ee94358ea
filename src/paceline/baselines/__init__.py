"""The reference techniques: importable from the ``baselines/`` folder of every content root."""

import os
from pathlib import Path

_HERE = Path(__file__).resolve().parents[1]
_SHIPPED = _HERE / "_content" if (_HERE / "_content").is_dir() else _HERE.parents[1]
_GIVEN = [Path(part) for part in os.environ.get("PACELINE_CONTENT", "").split(os.pathsep) if part]
__path__ = [str(root / "baselines") for root in (*_GIVEN, _SHIPPED)]
