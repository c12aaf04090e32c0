"""The application layer: one typed function per operation on a lab, with the role it requires.

The command line, the terminal view and the supervisor call these functions and nothing below them.
The modules of this folder have the operations; its packages have what operations, services and
screens need. Each module also names, in `__all__`, the types that its operations return.
"""
