"""``dequant_gemm``: a matrix times weights of a few bits."""
