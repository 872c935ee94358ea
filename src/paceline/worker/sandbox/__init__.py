"""A sandbox of the kernel for code that nobody has reviewed: namespaces, a seccomp filter, limits, a way to stop it.

``bubblewrap`` says what it sees, ``running`` starts it, ``inside`` is what a program does there first, ``seccomp``
makes its filter, ``stopping`` stops all of its threads from outside, ``channel`` carries messages that nobody there can
misuse, ``memory`` is what it may read and never change, ``starts`` asks the judge before a process is started there.
"""
