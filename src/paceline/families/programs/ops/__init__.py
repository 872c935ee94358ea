"""The operations of the programs family, one folder each."""
