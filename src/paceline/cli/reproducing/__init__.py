"""``paceline reproduce``: a record is measured again, also by the code that it was made with."""
