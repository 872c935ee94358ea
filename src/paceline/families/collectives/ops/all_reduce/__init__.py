"""All-reduce: a sum over ranks that every rank ends with."""
