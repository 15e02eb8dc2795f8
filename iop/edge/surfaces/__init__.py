"""What clients and operators talk to."""
