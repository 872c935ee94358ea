"""``scaled_gemm``: the product of two matrices in float8, each with one scale."""
