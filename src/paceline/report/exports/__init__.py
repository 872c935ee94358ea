"""Results in other tools' formats, as long tables, and as figures and tables of papers."""
