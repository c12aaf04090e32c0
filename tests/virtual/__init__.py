"""Tests of virtual phones, driven by the stock adb, by adbutils and by hand-made packets."""
