"""Questions while they are answered: how they are put to models, what techniques may ask, what is counted."""
