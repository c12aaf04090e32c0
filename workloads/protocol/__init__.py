"""The protocol between the central services and the agents: what crosses the wire.

messages      jobs, commands, parcels, heartbeats and events, with the names of queues and keys
limits        size limits of messages
condition     the state in which a phone has to be for a run
phone_facts   what a phone is and can do
stage         the stages of a job
metrics       the figures of a run, each with its provenance
verdict       whether a run counts, with coded reasons
faults        failures by blame
telemetry     the traced operations of a run, joined with sensor readings
memory_outcome  whether a workload fitted into a phone's memory
base          the base class of all messages, and digests
"""
