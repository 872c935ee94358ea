"""``grouped_gemm``: a mixture of experts' products: each expert's rows times its matrix."""
