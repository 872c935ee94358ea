"""``gemm``: the product of two matrices."""
