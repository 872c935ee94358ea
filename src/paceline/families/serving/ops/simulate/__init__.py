"""``simulate``: a technique deploys workers on devices, in virtual time from measured costs."""
