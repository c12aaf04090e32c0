"""The phone: its door (adb), its one interface, its kernel nodes, and what a probe learns."""
