"""The ledger of papers, and the premises on which claims rest."""
