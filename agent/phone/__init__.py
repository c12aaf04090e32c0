"""Access to one phone over adb: its shell, its kernel nodes, and what a probe finds out."""
