"""The device side of ADB over TCP: packets, streams and services."""
