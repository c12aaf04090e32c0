"""What both sides share: the protocol, the workloads, and how models become plans.

The orchestrator and the agent both import it. No process runs from this package.
"""
