"""Reports: tables for terminals and Markdown, exports, and the static site. Rounding happens here and nowhere else."""
