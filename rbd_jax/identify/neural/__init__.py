"""Networks for what the rigid bodies lack: their terms, the dynamics with them, and training."""
