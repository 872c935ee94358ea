"""All that kernels may import of the family: what they are given, PyTorch's operators, and parts that several share."""
