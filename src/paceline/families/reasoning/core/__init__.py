"""What operations share: models and their traces, questions and their grading, and the executor that counts tokens."""
