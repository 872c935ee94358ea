"""Networks of ranks on one machine: namespaces, and links between them with a rate and a delay."""
