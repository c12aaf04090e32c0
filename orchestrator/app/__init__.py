"""The application layer: one typed function per operation on a lab, with the role it requires.

The command line, the terminal view and the supervisor call these functions and nothing below them.
Each module also names, in `__all__`, the types that its operations return.
"""
