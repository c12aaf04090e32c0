"""The phone's file tree: real bytes under /data, live nodes under /sys and /proc."""
