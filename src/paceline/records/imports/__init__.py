"""Results of other tools as records: kept exactly as written, marked as imported, never passed off as verified."""

from paceline.records.imports.foreign import import_file
from paceline.records.imports.formats import FORMATS

__all__ = ["FORMATS", "import_file"]
