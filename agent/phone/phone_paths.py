"""Paths on the phone: the farm's folder, the folder of a lane, and the nodes that tell the time."""

HOME = "/data/local/tmp/farmhand"
UPTIME = "/proc/uptime"
BOOT_ID = "/proc/sys/kernel/random/boot_id"

# The folder that a lane hands to the runner as DIR; kernels/runner/runner.h names the files in it.
LANE_DIR = f"{HOME}/lane"
CHANGED_NODES, CHANGED_SETTINGS = "restore", "settings"  # what was changed, with the old values
RESTORED_MARK = "restored"  # the watchdog has restored the nodes
HEARTBEAT, TEMP_LIMITS = "heartbeat", "temp_limits"
HEARTBEAT_TIMEOUT = "heartbeat_timeout"  # read by the agent alone
PLAN, NODE_LIST = "plan", "nodes"
OUTPUT, READINGS, RUNNER_STDERR = "out.jsonl", "readings.jsonl", "err"
RAIL_LOG = "rails"  # readings of the power statistics
PROGRAM_DIR = "work"  # the folder of an external program
PROGRAM_STDOUT, PROGRAM_STDERR = "stdout", "stderr"


def lane_file(name: str) -> str:
    """The path of a file in the lane's folder."""
    return f"{LANE_DIR}/{name}"
