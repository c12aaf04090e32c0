"""The one door to a lab: one operation, one function, typed, with the role that it needs.

The command line, the terminal view and the supervisor call these functions and nothing below them.
Each module also names, in `__all__`, the types that its operations return.
"""
