"""The phone's file tree: regular files under /data, live nodes under /sys and /proc."""
