"""All-to-all: ranks transpose the matrix of their shares."""
