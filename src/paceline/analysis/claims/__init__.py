"""Claims of papers, judged by records: the verdict, where it holds, what it costs, whether its design could tell."""
