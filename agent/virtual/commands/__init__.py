"""What the phone's shell can run, by name. A name that is not here is not on the phone."""

from agent.virtual.commands.android import ANDROID
from agent.virtual.commands.awk import AWK
from agent.virtual.commands.builtins import BUILTINS
from agent.virtual.commands.files import FILES
from agent.virtual.commands.filters import FILTERS
from agent.virtual.commands.finding import FINDING
from agent.virtual.commands.monitors import MONITORS
from agent.virtual.commands.netcat import NETCAT
from agent.virtual.commands.processes import PROCESSES
from agent.virtual.commands.sed import SED
from agent.virtual.commands.system import SYSTEM
from agent.virtual.commands.texts import TEXTS
from agent.virtual.shell.call import Program

COMMANDS: dict[str, Program] = {
    **ANDROID,
    **AWK,
    **FILES,
    **FILTERS,
    **FINDING,
    **MONITORS,
    **NETCAT,
    **PROCESSES,
    **SED,
    **SYSTEM,
    **TEXTS,
    **BUILTINS,
}
