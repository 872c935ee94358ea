"""Row-parallel linear layers with RMSNorm: partial products, their sum over ranks, and what normalises it."""
