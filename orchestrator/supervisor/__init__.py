"""The processes of a lab on this computer: central services, agents, broker, virtual phones."""
