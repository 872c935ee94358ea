"""``predict``: a technique says what configurations of the engine would take, which then are executed."""
