"""Plugins: what t2t_keras offers beyond its core, found by entry points only."""
