"""Scripted trouble, told out of band: nothing of it passes through adb, so nobody sees it come."""
