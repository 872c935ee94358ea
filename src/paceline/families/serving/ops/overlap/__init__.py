"""``overlap``: a technique orders a batch's operators on one device, in virtual time from datasheets' rates."""
