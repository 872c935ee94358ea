"""All-gather: every rank ends with all ranks' shares."""
