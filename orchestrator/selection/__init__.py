"""Client selection for federated learning: phones as clients, policies, and their simulation."""
