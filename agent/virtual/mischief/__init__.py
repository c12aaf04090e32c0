"""Fault injection for virtual phones ("mischief").

Faults are requested through a script or a control socket, never through adb, so the program under
test cannot observe the requests.
"""
