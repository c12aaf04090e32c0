"""The lab that services share: settings, connections, certificates, logging, health and metrics."""
