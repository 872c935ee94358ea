"""``decode``: a technique decodes answers with a draft model beside copies of the target, in virtual time."""
