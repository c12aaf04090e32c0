"""The commands of the phone's shell, by name. A name that is not here is not on the phone."""

from agent.virtual.commands.android_commands import ANDROID_COMMANDS
from agent.virtual.commands.file_commands import FILE_COMMANDS
from agent.virtual.commands.process_commands import PROCESS_COMMANDS
from agent.virtual.commands.sed import SED_COMMANDS
from agent.virtual.commands.shell_builtins import BUILTINS
from agent.virtual.commands.system_commands import SYSTEM_COMMANDS
from agent.virtual.commands.text_commands import TEXT_COMMANDS, TEXT_FILTERS
from agent.virtual.shell.command_call import CommandFunction

COMMANDS: dict[str, CommandFunction] = {
    **ANDROID_COMMANDS,
    **FILE_COMMANDS,
    **TEXT_FILTERS,
    **PROCESS_COMMANDS,
    **SED_COMMANDS,
    **SYSTEM_COMMANDS,
    **TEXT_COMMANDS,
    **BUILTINS,
}
