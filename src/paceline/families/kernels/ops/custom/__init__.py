"""``custom``: an operation that a file of somebody's defines, in KernelBench's or flashinfer-bench's layout."""
