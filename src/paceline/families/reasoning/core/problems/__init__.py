"""Problems: the embedded reasoner's own, and questions with answers from files and from the hub."""
