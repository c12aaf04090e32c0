"""What both sides share: the protocol, the workloads, and how models become plans.

It has no own process. The orchestrator and the agent both import it.
"""
